#include "remote/client/aws_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string_view>

#include "remote/client/auth_file.h"
#include "remote/client/credentials.h"
#include "util/ascii.h"
#include "util/read_file.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln::remote {
namespace {

constexpr std::uint64_t kLargestProfile = 1U << 20U;

using Values = std::map<std::string, std::string, std::less<>>;

/// What stands below "[section]". Lines of nested values, which begin with a blank, are
/// left out.
Values section_of(std::string_view text, std::string_view section) {
  Values found;
  bool is_in = false;
  while (!text.empty()) {
    const std::string_view line = next_part(text, "\n");
    const std::size_t equals = line.find('=');
    if (line.starts_with('['))
      is_in = trimmed(line.substr(1, line.find(']') - 1)) == section;
    else if (is_in && equals != std::string_view::npos && is_name_start(line.front()))
      found[std::string(trimmed(line.substr(0, equals)))] =
          trimmed(line.substr(equals + 1));
  }
  return found;
}

std::filesystem::path path_of(const char* variable, const char* name) {
  if (std::string given = process_variable(variable); !given.empty())
    return given;
  const std::string home = process_variable("HOME");
  return home.empty() ? std::filesystem::path()
                      : std::filesystem::path(home) / ".aws" / name;
}

/// Of one file; empty: no such file or section.
Result<Values> read(const std::filesystem::path& path, const std::string& section) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error))
    return Values();
  auto values = section_of(KILN_TRY(read_text_file(path, kLargestProfile)), section);
  if (values.contains("aws_secret_access_key"))
    KILN_TRY(check_private(path, "the profile of AWS"));
  return values;
}

}  // namespace

Result<AwsKeys> read_aws_profile(const std::string& name) {
  const auto credentials = path_of("AWS_SHARED_CREDENTIALS_FILE", "credentials");
  const auto config = path_of("AWS_CONFIG_FILE", "config");
  std::array<Values, 2> files;
  files[0] = KILN_TRY(read(credentials, name));
  files[1] = KILN_TRY(
      read(config, name == "default" ? name : fmt::format("profile {}", name)));
  if (files[0].empty() && files[1].empty())
    return fail(ErrorCode::kNotFound,
                fmt::format("there is no profile of AWS of this name in '{}' or '{}'",
                            credentials.native(), config.native()));
  // A key, its secret and its token are of the same file.
  Values& with_keys = files[files[0]["aws_access_key_id"].empty() ? 1 : 0];
  for (const char* each : {"aws_access_key_id", "aws_secret_access_key"}) {
    if (with_keys[each].empty() || with_keys[each].find(' ') != std::string::npos)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the profile of AWS has no {}; a login or a role is not "
                              "followed",
                              each));
  }
  AwsKeys keys{.pair = fmt::format("{}:{}", with_keys["aws_access_key_id"],
                                   with_keys["aws_secret_access_key"]),
               .token = with_keys["aws_session_token"],
               .region = files[0]["region"]};
  if (keys.region.empty())
    keys.region = files[1]["region"];
  return keys;
}

}  // namespace kiln::remote
