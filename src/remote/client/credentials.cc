#include "remote/client/credentials.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "remote/client/auth_file.h"
#include "remote/client/aws_profile.h"
#include "util/base64.h"
#include "util/own_path.h"
#include "util/posix_error.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::remote {
namespace {

constexpr std::uint64_t kLargestFile = 65536;

/// `value`: "", "KEY:SECRET", "KEY:SECRET TOKEN", "profile NAME".
Result<AwsKeys> aws_keys(std::string_view value) {
  const std::string_view first = next_word(value);
  if (first == "profile")
    return read_aws_profile(std::string(value));
  if (!first.empty())
    return AwsKeys{.pair = std::string(first), .token = std::string(value)};
  const std::string key = process_variable("AWS_ACCESS_KEY_ID");
  const std::string secret = process_variable("AWS_SECRET_ACCESS_KEY");
  if (!key.empty() && !secret.empty())
    return AwsKeys{.pair = fmt::format("{}:{}", key, secret),
                   .token = process_variable("AWS_SESSION_TOKEN")};
  const std::string profile = process_variable("AWS_PROFILE");
  auto read = read_aws_profile(profile.empty() ? "default" : profile);
  if (!read && read.error().code == ErrorCode::kNotFound && profile.empty())
    return fail(ErrorCode::kInvalidArgument,
                "'aws' alone needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a "
                "profile of AWS");
  return read;
}

Result<Credentials> credentials_of(const AuthLine& line, const std::string& region) {
  Credentials found;
  if (line.kind == "bearer")
    found.authorization = fmt::format("Bearer {}", line.value);
  if (line.kind == "basic")
    found.authorization = fmt::format("Basic {}", encode_base64(as_bytes(line.value)));
  if (line.kind != "aws")
    return found;
  AwsKeys keys = KILN_TRY(aws_keys(line.value));
  found.user = std::move(keys.pair);
  found.aws_token = std::move(keys.token);
  for (const std::string& each :
       {region, process_variable("AWS_REGION"), process_variable("AWS_DEFAULT_REGION"),
        keys.region, std::string("us-east-1")}) {
    if (found.aws_region.empty())
      found.aws_region = each;
  }
  return found;
}

/// As a URL has it, of "user:password".
std::string escaped_pair(std::string_view pair) {
  std::string escaped;
  const std::size_t colon = pair.find(':');
  for (std::size_t i = 0; i < pair.size(); ++i) {
    const auto c = static_cast<unsigned char>(pair[i]);
    escaped += i == colon || std::isalnum(c) != 0 ? std::string(1, pair[i])
                                                  : fmt::format("%{:02X}", c);
  }
  return escaped;
}

}  // namespace

std::string process_variable(const char* name) {
  const char* const value = ::secure_getenv(name);  // Kiln never calls setenv
  return value == nullptr ? "" : value;
}

Result<void> check_private(const std::filesystem::path& path, std::string_view what) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    auto error = posix_error(fmt::format("{}: stat", what), path, errno);
    if (errno == ENOENT)
      error.value().code = ErrorCode::kNotFound;
    return error;
  }
  if (!is_secret(info))
    return fail(ErrorCode::kUntrusted, fmt::format("{}: others may use {}: {}", what,
                                                   path.native(), kSecretRemedy));
  return {};
}

Result<Credentials> read_credentials(const ServerFiles& files,
                                     const ServerAddress& server) {
  Credentials found;
  if (server.base.starts_with("file:"))
    return found;
  Proxy proxy = KILN_TRY(find_proxy(server, process_variable));
  if (!files.auth.empty()) {
    KILN_TRY(check_private(files.auth, "KILN_REMOTE_AUTH"));
    const std::string text = KILN_TRY(read_text_file(files.auth, kLargestFile));
    const std::string named =
        fmt::format("KILN_REMOTE_AUTH names {}", files.auth.native());
    const auto lines = KILN_TRY(about(named, parse_auth_file(text)));
    if (const AuthLine* line = line_for(lines, server.base); line != nullptr)
      found = KILN_TRY(about(fmt::format("{}: line {}", named, line->number),
                             credentials_of(*line, server.region)));
    const AuthLine* const of_proxy =
        proxy.url.empty() ? nullptr : line_for(lines, proxy.url);
    if (of_proxy != nullptr && !of_proxy->prefix.empty() && of_proxy->kind == "basic" &&
        proxy.user.empty())
      proxy.user = escaped_pair(of_proxy->value);
  }
  found.proxy = std::move(proxy.url);
  found.proxy_user = std::move(proxy.user);
  found.ca_bundle = files.ca.native();
  if (!files.certificate.empty()) {
    KILN_TRY(check_private(files.certificate, "KILN_REMOTE_CERT"));
    found.certificate = files.certificate.native();
    found.certificate_key = found.certificate;
  }
  return found;
}

}  // namespace kiln::remote
