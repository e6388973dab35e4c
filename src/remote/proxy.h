// Through which proxy a server is reached: by the server's own option, or by the
// variables that curl reads.

#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "kiln/result.h"
#include "remote/server_address.h"

namespace kiln::remote {

/// Thread safety: a value.
struct Proxy {
  std::string url{};   // without a user; empty: the server is reached directly
  std::string user{};  // a secret: "user:password" with %XX, as a URL has it
  std::string by{};    // "https_proxy", "NO_PROXY", ";proxy="; empty: nothing is said

  /// "proxy http://p:3128 (https_proxy)", "no proxy (NO_PROXY)"; "" if nothing is said.
  [[nodiscard]] std::string text() const;
  friend bool operator==(const Proxy&, const Proxy&) = default;
};

/// The value of an environment variable; "": it is not set.
using Variable = std::function<std::string(const char* name)>;

/// The first variable that is set, and its value.
[[nodiscard]] std::pair<std::string, std::string> first_of(
    std::initializer_list<const char*> names, const Variable& variable);

/// ";proxy=" first. Else http_proxy (in lower case alone, since a CGI program has
/// HTTP_PROXY from its client) or https_proxy, HTTPS_PROXY; then all_proxy, ALL_PROXY;
/// unless no_proxy, NO_PROXY names the host, or it is this machine. A redirect is
/// followed through the same proxy. Errors: kInvalidArgument: a variable that is no
/// proxy; the message shows no value.
[[nodiscard]] Result<Proxy> find_proxy(const ServerAddress& server,
                                       const Variable& variable);

/// Whether a list such as "localhost,.example.com,10.0.0.0/8,cache:8080" or "*" names
/// the host of this URL: as libcurl reads NO_PROXY, and with ports.
[[nodiscard]] bool is_without_proxy(std::string_view url, std::string_view list);

/// A URL of this machine itself.
[[nodiscard]] bool is_loopback(std::string_view url);
/// Without TLS, to another machine.
[[nodiscard]] bool is_open_way(std::string_view url);

}  // namespace kiln::remote
