#include "remote/client/credentials.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "util/base64.h"
#include "util/own_path.h"
#include "util/posix_error.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::remote {
namespace {

constexpr std::uint64_t kLargestFile = 65536;
constexpr std::string_view kBlanks = " \t\r\n";

/// Errors: kUntrusted; kNotFound; kIo.
Result<void> check_private(const std::filesystem::path& path,
                           std::string_view variable) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    auto error = posix_error(fmt::format("{}: stat", variable), path, errno);
    if (errno == ENOENT)
      error.value().code = ErrorCode::kNotFound;
    return error;
  }
  if (!is_secret(info))
    return fail(ErrorCode::kUntrusted,
                fmt::format("{} names {}, which others may use: {}", variable,
                            path.native(), kSecretRemedy));
  return {};
}

/// The first of these variables that is set; "" if none is.
std::string variable(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = process_variable(name); !value.empty())
      return value;
  }
  return {};
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

bool is_pair(std::string_view text) {
  const std::size_t colon = text.find(':');
  return colon != std::string_view::npos && colon > 0;
}

/// nullopt: those are not all there, or not of this form.
std::optional<Credentials> parse_aws(std::string_view pair, const std::string& region) {
  Credentials found;
  if (!pair.empty()) {
    found.user = pair;
  } else {
    found.user = fmt::format("{}:{}", variable({"AWS_ACCESS_KEY_ID"}),
                             variable({"AWS_SECRET_ACCESS_KEY"}));
    found.aws_token = variable({"AWS_SESSION_TOKEN"});
  }
  found.aws_region =
      region.empty() ? variable({"AWS_REGION", "AWS_DEFAULT_REGION"}) : region;
  if (found.aws_region.empty())
    found.aws_region = "us-east-1";
  if (!is_pair(found.user) || found.user.ends_with(':'))
    return std::nullopt;
  return found;
}

/// nullopt, too, for more than one line.
std::optional<Credentials> parse_auth(std::string_view text,
                                      const std::string& region) {
  text = trimmed(text);
  const std::string_view kind = text.substr(0, text.find_first_of(kBlanks));
  const std::string_view value = trimmed(text.substr(kind.size()));
  if (std::ranges::any_of(value, [](unsigned char c) { return c < ' ' || c == 0x7F; }))
    return std::nullopt;
  const bool is_word = value.find(' ') == std::string_view::npos;
  if (kind == "aws")
    return is_word ? parse_aws(value, region) : std::nullopt;
  Credentials found;
  if (kind == "bearer" && is_word && !value.empty())
    found.authorization = fmt::format("Bearer {}", value);
  else if (kind == "basic" && is_pair(value))
    found.authorization = fmt::format("Basic {}", encode_base64(as_bytes(value)));
  else
    return std::nullopt;
  return found;
}

}  // namespace

std::string process_variable(const char* name) {
  const char* const value = ::secure_getenv(name);  // Kiln never calls setenv
  return value == nullptr ? "" : value;
}

Result<Credentials> read_credentials(const ServerFiles& files,
                                     const ServerAddress& server) {
  Credentials found;
  if (server.base.starts_with("file:"))
    return found;
  if (!files.auth.empty()) {
    KILN_TRY(check_private(files.auth, "KILN_REMOTE_AUTH"));
    const std::string text = KILN_TRY(read_text_file(files.auth, kLargestFile));
    auto parsed = parse_auth(text, server.region);
    if (!parsed)
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("KILN_REMOTE_AUTH names {}, which has no line such as 'bearer "
                      "TOKEN', 'basic USER:PASSWORD', 'aws KEY:SECRET', or 'aws' with "
                      "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
                      files.auth.native()));
    found = *std::move(parsed);
  }
  Proxy proxy = KILN_TRY(find_proxy(server, process_variable));
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
