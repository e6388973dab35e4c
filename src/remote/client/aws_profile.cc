#include "remote/client/aws_profile.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "remote/client/credential_sources.h"
#include "remote/client/credentials.h"
#include "util/ascii.h"
#include "util/own_path.h"
#include "util/read_file.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln::remote {
namespace {

constexpr std::uint64_t kLargestProfile = 1U << 20U;
constexpr std::array<const char*, 3> kOfKey{
    "aws_access_key_id", "aws_secret_access_key", "aws_session_token"};

/// What stands below "[section]". Lines of nested values, which begin with a blank, are
/// left out.
AwsProfile section_of(std::string_view text, std::string_view section) {
  AwsProfile found;
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
Result<AwsProfile> read(const std::filesystem::path& path, const std::string& section) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error))
    return AwsProfile();
  auto values = section_of(KILN_TRY(read_text_file(path, kLargestProfile)), section);
  if (values.contains("aws_secret_access_key"))
    KILN_TRY(check_private(path, "the profile of AWS"));
  struct stat info {};
  if ((values.contains("credential_process") ||
       values.contains("web_identity_token_file")) &&
      (::stat(path.c_str(), &info) != 0 ||
       !is_trusted(info, [] { return std::nullopt; })))
    return fail(
        ErrorCode::kUntrusted,
        fmt::format("others may write {}, which names a command or a secret file: "
                    "chmod 600",
                    path.native()));
  return values;
}

}  // namespace

Result<AwsProfile> read_aws_profile(const std::string& name) {
  const auto credentials = path_of("AWS_SHARED_CREDENTIALS_FILE", "credentials");
  const auto config = path_of("AWS_CONFIG_FILE", "config");
  std::array<AwsProfile, 2> files;
  files[0] = KILN_TRY(read(credentials, name));
  files[1] = KILN_TRY(
      read(config, name == "default" ? name : fmt::format("profile {}", name)));
  if (files[0].empty() && files[1].empty())
    return fail(ErrorCode::kNotFound,
                fmt::format("there is no profile of AWS of this name in '{}' or '{}'",
                            credentials.native(), config.native()));
  // A key, its secret and its token are of the same file.
  for (const char* each : kOfKey)
    files[files[0].contains(kOfKey[0]) ? 1 : 0].erase(each);
  AwsProfile profile = std::move(files[0]);
  profile.merge(files[1]);
  const auto has = [&](std::string_view name) {
    const auto found = profile.find(name);
    return found != profile.end() && is_word(found->second);
  };
  if (!profile["credential_process"].empty() ||
      (has("role_arn") && has("web_identity_token_file")))
    return profile;
  for (const char* each : {kOfKey[0], kOfKey[1]}) {
    if (has(each))
      continue;
    const bool is_other = std::ranges::any_of(profile, [](const auto& value) {
      return value.first.starts_with("aws_") || value.first.starts_with("sso_") ||
             value.first.starts_with("role_") || value.first.starts_with("login_");
    });
    return fail(is_other ? ErrorCode::kInvalidArgument : ErrorCode::kNotFound,
                fmt::format("the profile of AWS has no {}; a login or another "
                            "profile's role is not followed",
                            each));
  }
  return profile;
}

}  // namespace kiln::remote
