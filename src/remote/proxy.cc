#include "remote/proxy.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "util/text.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::remote {
namespace {

constexpr std::size_t kBits = 128;
using Address = std::bitset<kBits>;

bool is_ipv6(std::string_view text) {
  return text.find(':') != std::string_view::npos;
}

/// Of IPv4 as ::ffff:1.2.3.4; the first bit is bit 0.
std::optional<Address> parse_address(const std::string& text) {
  constexpr std::size_t kByte = 8;
  std::array<std::uint8_t, kBits / kByte> bytes{};
  // "cafe" is a host, though "::ffff:cafe" is an address.
  if (!is_ipv6(text) && text.find('.') == std::string::npos)
    return std::nullopt;
  if (::inet_pton(AF_INET6, (is_ipv6(text) ? text : "::ffff:" + text).c_str(),
                  bytes.data()) != 1)
    return std::nullopt;
  Address address;
  for (std::size_t i = 0; i < kBits; ++i)
    address[i] = (bytes[i / kByte] >> (kByte - 1 - i % kByte) & 1U) != 0;
  return address;
}

/// `entry`: "10.0.0.1", "10.0.0.0/8", "fd00::/8".
bool has_address(const std::string& entry, const std::string& host) {
  constexpr std::size_t kIpv4Bits = 32;
  const std::size_t slash = std::min(entry.find('/'), entry.size());
  const auto network = parse_address(entry.substr(0, slash));
  const auto address = parse_address(host);
  if (!network || !address || is_ipv6(entry) != is_ipv6(host))
    return false;
  const std::size_t most = is_ipv6(host) ? kBits : kIpv4Bits;
  const auto bits = slash == entry.size()
                        ? Result<std::uint64_t>(most)
                        : parse_number(entry.substr(slash + 1), {0, most});
  // The bits behind the prefix are shifted out.
  return bits && (*network ^ *address) << (most - *bits) == Address();
}

/// `entry`: "example.com", ".example.com". Both in lower case.
bool has_name(std::string_view entry, std::string_view host) {
  if (entry.starts_with('.'))
    entry.remove_prefix(1);
  if (entry.empty() || !host.ends_with(entry))
    return false;
  const std::string_view before = host.substr(0, host.size() - entry.size());
  return before.empty() || before.ends_with('.');
}

std::string_view without_dot(std::string_view name) {
  return name.substr(0, name.size() - (name.ends_with('.') ? 1 : 0));
}

}  // namespace

std::string Proxy::text() const {
  if (by.empty())
    return {};
  return url.empty() ? fmt::format("no proxy ({})", by)
                     : fmt::format("proxy {} ({})", url, by);
}

std::pair<std::string, std::string> first_of(std::initializer_list<const char*> names,
                                             const Variable& variable) {
  for (const char* name : names) {
    if (std::string value = variable(name); !value.empty())
      return {name, std::move(value)};
  }
  return {};
}

bool is_without_proxy(std::string_view url, std::string_view list) {
  const HostAndPort server = host_of(url);
  const bool is_address = parse_address(server.host).has_value();
  while (!list.empty()) {
    std::string entry = lower_case(next_part(list, ", \t\n"));
    if (entry == "*")
      return true;
    // Not that of an IPv6 address without brackets.
    const std::size_t colon = entry.rfind(':');
    if (colon != std::string::npos &&
        (entry.find(':') == colon || entry[colon - 1] == ']')) {
      if (entry.substr(colon + 1) != server.port)
        continue;
      entry.resize(colon);
    }
    if (entry.starts_with('[') && entry.ends_with(']'))
      entry = entry.substr(1, entry.size() - 2);
    if (is_address ? has_address(entry, server.host)
                   : has_name(without_dot(entry), without_dot(server.host)))
      return true;
  }
  return false;
}

bool is_loopback(std::string_view url) {
  return host_of(url).host == "localhost" || is_without_proxy(url, "127.0.0.0/8,::1");
}

bool is_open_way(std::string_view url) {
  return (url.starts_with("http:") || url.starts_with("socks")) && !is_loopback(url);
}

Result<Proxy> find_proxy(const ServerAddress& server, const Variable& variable) {
  if (server.base.starts_with("file:"))
    return Proxy();
  if (server.proxy)
    return Proxy{.url = *server.proxy, .by = ";proxy="};
  auto [name, value] =
      server.base.starts_with("https:")
          ? first_of({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}, variable)
          : first_of({"http_proxy", "all_proxy", "ALL_PROXY"}, variable);
  if (name.empty() || is_loopback(server.base))
    return Proxy();
  const auto [excluding, list] = first_of({"no_proxy", "NO_PROXY"}, variable);
  if (is_without_proxy(server.base, list))
    return Proxy{.by = excluding};
  Proxy proxy{.by = name};
  // The last one, as in curl: a password may have another.
  const std::size_t scheme = value.find("://");
  const std::size_t user = scheme == std::string::npos ? 0 : scheme + 3;
  if (const std::size_t at = value.rfind('@'); at != std::string::npos && at >= user) {
    proxy.user = value.substr(user, at - user);
    value.erase(user, at + 1 - user);
  }
  proxy.url = KILN_TRY(about(name, parse_proxy(value)));
  return proxy;
}

}  // namespace kiln::remote
