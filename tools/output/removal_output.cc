#include "tools/output/removal_output.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "util/units.h"

namespace kiln::tools {

void print_removal(const Context& context, const Removal& removal) {
  if (context.json) {
    nlohmann::ordered_json keys = nlohmann::ordered_json::array();
    for (const Digest& key : removal.keys) keys.push_back(key.hex());
    nlohmann::ordered_json document{{"removed", removal.keys.size()},
                                    {"freed_bytes", removal.freed_bytes},
                                    {"dry_run", removal.dry_run},
                                    {"keys", keys}};
    print_json(document);
    return;
  }
  print(fmt::format("{} {} entries, {}\n", removal.dry_run ? "would remove" : "removed",
                    removal.keys.size(), format_size(removal.freed_bytes)));
}

}  // namespace kiln::tools
