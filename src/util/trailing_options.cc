#include "util/trailing_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "util/text.h"
#include "util/try.h"

namespace kiln {

Result<void> read_options(
    std::string_view text, std::string_view options,
    const std::function<Result<void>(const std::string& name,
                                     const std::string& value)>& set) {
  std::vector<std::string> given;
  while (!options.empty()) {
    std::string_view value = next_part(options, ";");
    const std::string name(next_part(value, "="));
    if (name.empty() && value.empty())
      continue;
    KILN_TRY(about(fmt::format("{};{}", text, name),
                   std::ranges::find(given, name) == given.end()
                       ? set(name, std::string(value))
                       : refuse("it is given twice")));
    given.push_back(name);
  }
  return {};
}

}  // namespace kiln
