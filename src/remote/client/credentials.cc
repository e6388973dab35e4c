#include "remote/client/credentials.h"

#include <fmt/format.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "remote/client/auth_file.h"
#include "remote/client/credential_sources.h"
#include "util/base64.h"
#include "util/log.h"
#include "util/own_path.h"
#include "util/posix_error.h"
#include "util/read_file.h"
#include "util/text.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::remote {
namespace {

constexpr std::uint64_t kLargestFile = 65536;

Result<FoundCredentials> credentials_of(const AuthLine& line,
                                        const ServerAddress& server,
                                        const Asking& ask) {
  FoundCredentials found;
  if (line.kind == "aws")
    found = KILN_TRY(find_aws_keys(line.value, server.region, ask));
  if (line.kind == "command")
    found = KILN_TRY(ask_command(line.value, server.base));
  if (found.ends && *found.ends <= std::chrono::system_clock::now())
    return fail(ErrorCode::kUnavailable,
                "the credentials of {} have ended, at {}: renew them, or "
                "set this machine's clock",
                found.source, format_time(*found.ends));
  if (!found.who.user.empty() && found.who.aws_region.empty())
    found.who.aws_region = region_for(server.region, ask);
  if (line.kind == "bearer")
    found.who.authorization = fmt::format("Bearer {}", line.value);
  if (line.kind == "basic")
    found.who.authorization =
        fmt::format("Basic {}", encode_base64(as_bytes(line.value)));
  if (line.kind == "query")
    found.who.query = line.value;
  return found;
}

std::string named_line(const ServerFiles& files, const AuthLine& line) {
  return fmt::format("KILN_REMOTE_AUTH names {}: line {}", files.auth.native(),
                     line.number);
}

/// What the files and the environment say of a server. A folder is asked by nobody.
struct Lines {
  std::optional<AuthLine> of_server{};
  Proxy proxy{};
};

Result<Lines> lines_of(const ServerFiles& files, const ServerAddress& server,
                       const Variable& variable) {
  if (server.base.starts_with("file:"))
    return Lines();
  Lines found{.proxy = KILN_TRY(find_proxy(server, variable))};
  if (!files.certificate.empty())
    KILN_TRY(check_private(files.certificate, "KILN_REMOTE_CERT"));
  if (files.auth.empty())
    return found;
  KILN_TRY(check_private(files.auth, "KILN_REMOTE_AUTH"));
  const std::string text = KILN_TRY(read_text_file(files.auth, kLargestFile));
  const auto lines =
      KILN_TRY(about(fmt::format("KILN_REMOTE_AUTH names {}", files.auth.native()),
                     parse_auth_file(text)));
  for (const AuthLine& each : lines) {
    static std::atomic_flag has_warned;
    if (each.prefix == kNobody && !has_warned.test_and_set())
      log(LogLevel::kWarning, {named_line(files, each), ": ", each.error,
                               ": no server gets its credentials"});
  }
  if (const AuthLine* const line = line_for(lines, server.base); line != nullptr)
    found.of_server = *line;
  if (found.of_server && !found.of_server->error.empty())
    return refuse("{}: {}", named_line(files, *found.of_server),
                  found.of_server->error);
  const AuthLine* const of_proxy =
      found.proxy.url.empty() ? nullptr : line_for(lines, found.proxy.url);
  if (of_proxy != nullptr && !of_proxy->prefix.empty() && of_proxy->kind == "basic" &&
      of_proxy->error.empty() && found.proxy.user.empty()) {
    std::string_view password = of_proxy->value;
    const std::string_view user = next_part(password, ":");
    found.proxy.user = fmt::format("{}:{}", escaped(user), escaped(password));
  }
  return found;
}

}  // namespace

Variable read_variables() {
  std::map<std::string, std::string, std::less<>> found;
  char** each = ::getauxval(AT_SECURE) == 0 ? environ : nullptr;
  for (; each != nullptr && *each != nullptr; ++each) {
    std::string_view value = *each;
    const std::string_view name = next_part(value, "=");
    if (name == "HOME" || name.starts_with("AWS_") ||
        lower_case(name).ends_with("_proxy"))
      found.try_emplace(std::string(name), value);
  }
  return [found = std::move(found)](const char* name) {
    const auto each = found.find(name);
    return each == found.end() ? "" : each->second;
  };
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
    return fail(ErrorCode::kUntrusted, "{}: others may use {}: {}", what, path.native(),
                kSecretRemedy);
  return {};
}

Result<FoundCredentials> read_credentials(const ServerFiles& files,
                                          const ServerAddress& server,
                                          const Asking& ask) {
  Lines lines = KILN_TRY(lines_of(files, server, ask.variable));
  FoundCredentials found;
  if (lines.of_server)
    found = KILN_TRY(about(named_line(files, *lines.of_server),
                           credentials_of(*lines.of_server, server, ask)));
  found.who.proxy = std::move(lines.proxy.url);
  found.who.proxy_user = std::move(lines.proxy.user);
  found.who.ca_bundle = files.ca.native();
  found.who.certificate = files.certificate.native();
  return found;
}

Result<void> check_credentials(const ServerFiles& files, const ServerAddress& server) {
  KILN_TRY(lines_of(files, server, read_variables()));
  return {};
}

}  // namespace kiln::remote
