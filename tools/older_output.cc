#include "tools/older_output.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "tools/context.h"
#include "tools/entry_output.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

/// One that is empty is not worth a word.
std::vector<cache::OlderFormat> with_objects(cache::Cache& cache) {
  auto found = cache.older_formats();
  std::erase_if(found, [](const auto& older) { return older.objects.empty(); });
  return found;
}

}  // namespace

void print_older_formats(cache::Cache& cache) {
  for (const cache::OlderFormat& older : with_objects(cache)) {
    print_error(fmt::format(
        "objects/v{}: {} objects, {} of an older format, used by no program of this "
        "version; `kiln trim` and `kiln clear --all` remove them\n",
        older.version(), older.objects.size(), format_size(older.bytes())));
  }
}

void add_older_formats(cache::Cache& cache, nlohmann::ordered_json& document) {
  for (const cache::OlderFormat& older : with_objects(cache)) {
    const nlohmann::ordered_json row{{"version", older.version()},
                                     {"objects", older.objects.size()},
                                     {"bytes", older.bytes()},
                                     {"last_used", time_text(older.last_used_ns())}};
    document["older_formats"].push_back(row);
  }
}

}  // namespace kiln::tools
