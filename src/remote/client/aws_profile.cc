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
constexpr const char* kByCommand =
    "let AWS's CLI do it, by the line 'command aws configure export-credentials "
    "--profile NAME' of KILN_REMOTE_AUTH";

/// What stands below "[section]". Empty values are left out, and lines of nested ones,
/// which begin with a blank.
AwsProfile section_of(std::string_view text, std::string_view section) {
  AwsProfile found;
  bool is_in = false;
  while (!text.empty()) {
    const std::string_view line = next_part(text, "\n");
    const std::size_t equals = line.find('=');
    if (line.starts_with('['))
      is_in = trimmed(line.substr(1, line.find(']') - 1)) == section;
    else if (is_in && equals != std::string_view::npos && is_name_start(line.front()) &&
             !trimmed(line.substr(equals + 1)).empty())
      found[std::string(trimmed(line.substr(0, equals)))] =
          trimmed(line.substr(equals + 1));
  }
  return found;
}

std::filesystem::path path_of(const std::string& given, const std::string& home,
                              const char* name) {
  if (!given.empty())
    return given;
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
  if ((values.contains("credential_process") || values.contains("role_arn") ||
       values.contains("web_identity_token_file")) &&
      (::stat(path.c_str(), &info) != 0 ||
       !is_trusted(info, [] { return std::nullopt; })))
    return fail(ErrorCode::kUntrusted,
                "others may write {}, which names a command, a role or a secret file: "
                "chmod 600",
                path.native());
  return values;
}

/// Whether it has keys. Errors: kNotFound: nor does it name another identity.
Result<void> check_keys(const AwsProfile& profile) {
  const auto names = [&](std::string_view prefix) {
    const auto found = profile.lower_bound(prefix);
    return found != profile.end() && found->first.starts_with(prefix);
  };
  for (const char* each : {kOfKey[0], kOfKey[1]}) {
    if (const auto found = profile.find(each);
        found != profile.end() && is_word(found->second))
      continue;
    constexpr std::array kIdentities{"aws_",    "credential_", "login_", "role_",
                                     "source_", "sso_",        "web_"};
    return fail(std::ranges::any_of(kIdentities, names) ? ErrorCode::kInvalidArgument
                                                        : ErrorCode::kNotFound,
                "the profile of AWS has no {}; if it has a login, {}", each,
                kByCommand);
  }
  return {};
}

/// The profile without what does not count in it.
Result<AwsProfile> settle(AwsProfile profile, bool is_source) {
  const auto has = [&](const char* name) { return profile.contains(name); };
  const bool is_web = has("web_identity_token_file") && has("role_arn");
  if (is_source && has(kOfKey[0]) && !is_web)
    profile.erase("role_arn");  // as in AWS's CLI
  if (has("role_arn") && !is_web) {
    if (has("mfa_serial"))
      return refuse("its role wants a code (mfa_serial): {}", kByCommand);
    if (has("source_profile") == has("credential_source"))
      return refuse("its role_arn needs source_profile or credential_source");
    return profile;
  }
  if (!is_web && (has(kOfKey[0]) || !has("credential_process")))
    KILN_TRY(check_keys(profile));
  profile.erase("source_profile");
  profile.erase("credential_source");
  return profile;
}

/// `is_source`: of another profile.
Result<AwsProfile> read_profile(const std::string& name, const Variable& variable,
                                bool is_source) {
  const auto credentials =
      path_of(variable("AWS_SHARED_CREDENTIALS_FILE"), variable("HOME"), "credentials");
  const auto config = path_of(variable("AWS_CONFIG_FILE"), variable("HOME"), "config");
  std::array<AwsProfile, 2> files;
  files[0] = KILN_TRY(read(credentials, name));
  files[1] = KILN_TRY(
      read(config, name == "default" ? name : fmt::format("profile {}", name)));
  if (files[0].empty() && files[1].empty())
    return fail(ErrorCode::kNotFound,
                "there is no profile of AWS of this name in '{}' or '{}'",
                credentials.native(), config.native());
  // A key, its secret and its token are of the same file.
  for (const char* each : kOfKey)
    files[files[0].contains(kOfKey[0]) ? 1 : 0].erase(each);
  files[0].merge(files[1]);
  return settle(std::move(files[0]), is_source);
}

}  // namespace

Result<std::vector<AwsProfile>> read_aws_profiles(const std::string& name,
                                                  const Variable& variable) {
  constexpr std::size_t kMost = 5;
  std::vector<AwsProfile> chain;
  for (std::string each = name; chain.empty() || !each.empty();
       each = chain.back()["source_profile"]) {
    if (chain.size() == kMost)
      return refuse("its source_profile and those behind it have no end");
    auto profile = read_profile(each, variable, !chain.empty());
    if (!profile && !chain.empty())
      return refuse("its source_profile '{}': {}", each, profile.error().message);
    chain.push_back(KILN_TRY(std::move(profile)));
  }
  return chain;
}

}  // namespace kiln::remote
