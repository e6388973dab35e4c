#include "render/prelude_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "render/kernel_file.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::render {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEntry = "prelude.cuh";
constexpr std::string_view kBegin = "#include \"prelude/";
constexpr std::string_view kEnd = ".cuh\"";

/// Lines with their line ends; the last may have none.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return lines;
}

/// "prelude/<part>.cuh"; "" if the line is not exactly that include.
std::string part_of(std::string_view line) {
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  if (!line.starts_with(kBegin) || !line.ends_with(kEnd) ||
      line.size() <= kBegin.size() + kEnd.size())
    return "";
  line.remove_prefix(kBegin.find('"') + 1);
  line.remove_suffix(1);
  return line.find('/', line.find('/') + 1) == std::string_view::npos
             ? std::string(line)
             : "";
}

class PreludeReader {
 public:
  explicit PreludeReader(const fs::path& folder) : folder_(folder) {}

  Result<std::string> read() {
    const std::string entry = KILN_TRY(plain_text(kEntry));
    std::string out;
    std::size_t number = 0;
    for (const std::string_view line : lines_of(entry)) {
      ++number;
      out += is_include_line(line) ? KILN_TRY(part(line, number)) : std::string(line);
    }
    return out;
  }

 private:
  [[nodiscard]] tl::unexpected<Error> error(std::string_view file, std::size_t line,
                                            std::string_view what) const {
    return refuse("{}:{}: {}", (folder_ / file).string(), line, what);
  }

  [[nodiscard]] Result<std::string> plain_text(std::string_view file) const {
    std::string text = KILN_TRY(read_text_file(folder_ / file, kMaxTextBytes));
    KILN_TRY(check_prelude_text(text, (folder_ / file).string()));
    return text;
  }

  /// The text that replaces line `number` of prelude.cuh.
  Result<std::string> part(std::string_view line, std::size_t number) {
    const std::string name = part_of(line);
    if (name.empty())
      return error(kEntry, number,
                   "the prelude includes its own parts alone: #include "
                   "\"prelude/<part>.cuh\"");
    if (!seen_.insert(name).second)
      return error(kEntry, number, fmt::format("'{}' is included twice", name));
    std::error_code ignored;
    if (!fs::exists(folder_ / name, ignored))
      return error(kEntry, number, fmt::format("there is no '{}'", name));
    const std::string text = KILN_TRY(plain_text(name));
    std::size_t line_of_part = 0;
    for (const std::string_view each : lines_of(text)) {
      ++line_of_part;
      if (is_include_line(each))
        return error(name, line_of_part, "a part of the prelude includes nothing");
    }
    // #line must begin a line.
    return fmt::format("#line 1 \"{}\"\n{}{}#line {} \"{}\"\n", name, text,
                       text.ends_with('\n') ? "" : "\n", number + 1, kEntry);
  }

  const fs::path& folder_;
  std::set<std::string> seen_;
};

}  // namespace

Result<std::string> read_prelude(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / kEntry, ignored))
    return std::string();
  return PreludeReader(folder).read();
}

}  // namespace kiln::render
