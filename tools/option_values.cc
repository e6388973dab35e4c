#include "tools/option_values.h"

#include <fmt/format.h>

#include <filesystem>

namespace kiln::tools {

Result<std::uint64_t> parse_number(std::string_view option, std::string_view text,
                                   NumberRange range) {
  auto number = kiln::parse_number(text, range);
  if (!number)
    return fail(number.error().code,
                fmt::format("{}: {}", option, number.error().message));
  return number;
}

Result<void> check_output_path(std::string_view option, const std::string& path) {
  if (path == "-")
    return {};
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} {}: that is a folder", option, path));
  }
  auto folder = std::filesystem::path(path).parent_path();
  if (folder.empty())
    folder = ".";
  if (!std::filesystem::is_directory(folder, error)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} {}: there is no folder {}", option, path, folder.native()));
  }
  return {};
}

}  // namespace kiln::tools
