#include "tools/option_values.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {

Result<std::uint64_t> parse_number(std::string_view option, std::string_view text,
                                   Range range) {
  std::uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < range.least ||
      value > range.most) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: '{}' is not a whole number from {} to {}", option,
                            text, range.least, range.most));
  }
  return value;
}

Result<std::chrono::milliseconds> parse_time_limit(std::string_view text) {
  const auto limit = KILN_TRY(parse_duration(text));
  if (limit.count() == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a time limit of '{}' leaves no time to build", text));
  }
  return limit;
}

Result<void> check_output_path(std::string_view option, const std::string& path) {
  if (path == "-")
    return {};
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} {}: that is a folder", option, path));
  }
  const auto folder = std::filesystem::absolute(path).parent_path();
  if (!std::filesystem::is_directory(folder, error)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} {}: there is no folder {}", option, path, folder.native()));
  }
  return {};
}

}  // namespace kiln::tools
