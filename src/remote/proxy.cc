#include "remote/proxy.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "util/try.h"
#include "util/units.h"

namespace kiln::remote {
namespace {

using Address = std::array<std::uint8_t, sizeof(in6_addr)>;

struct Ip {
  Address bytes{};
  unsigned bits = 0;  // 32 or 128
};

std::optional<Ip> parse_ip(const std::string& text) {
  constexpr unsigned kV4Bits = 32;
  constexpr unsigned kV6Bits = 128;
  Ip ip;
  if (::inet_pton(AF_INET, text.c_str(), ip.bytes.data()) == 1)
    ip.bits = kV4Bits;
  else if (::inet_pton(AF_INET6, text.c_str(), ip.bytes.data()) == 1)
    ip.bits = kV6Bits;
  else
    return std::nullopt;
  return ip;
}

bool are_equal(const Ip& a, const Ip& b, unsigned bits) {
  constexpr unsigned kByte = 8;
  if (a.bits != b.bits || bits > a.bits)
    return false;
  const std::size_t whole = bits / kByte;
  if (!std::equal(a.bytes.begin(), a.bytes.begin() + whole, b.bytes.begin()))
    return false;
  const unsigned shift = kByte - bits % kByte;
  return shift == kByte || a.bytes[whole] >> shift == b.bytes[whole] >> shift;
}

/// `entry`: "10.0.0.1", "10.0.0.0/8".
bool has_address(const std::string& entry, const Ip& host) {
  const std::size_t slash = std::min(entry.find('/'), entry.size());
  const auto network = parse_ip(entry.substr(0, slash));
  if (!network)
    return false;
  if (slash == entry.size())
    return are_equal(*network, host, host.bits);
  const auto bits = parse_number(entry.substr(slash + 1), {0, network->bits});
  return bits && are_equal(*network, host, static_cast<unsigned>(*bits));
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

/// The variable that is set, and its value.
std::pair<std::string, std::string> first_of(std::initializer_list<const char*> names,
                                             const Variable& variable) {
  for (const char* name : names) {
    if (std::string value = variable(name); !value.empty())
      return {name, std::move(value)};
  }
  return {};
}

}  // namespace

std::string Proxy::text() const {
  if (by.empty())
    return {};
  return url.empty() ? fmt::format("no proxy ({})", by)
                     : fmt::format("proxy {} ({})", url, by);
}

bool is_without_proxy(std::string_view url, std::string_view list) {
  const HostAndPort server = host_of(url);
  const auto ip = parse_ip(server.host);
  while (!list.empty()) {
    const std::size_t end = std::min(list.find_first_of(", \t\n"), list.size());
    std::string entry = lower_case(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
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
    if (ip ? has_address(entry, *ip)
           : has_name(without_dot(entry), without_dot(server.host)))
      return true;
  }
  return false;
}

Result<Proxy> find_proxy(const ServerAddress& server, const Variable& variable) {
  if (server.base.starts_with("file:"))
    return Proxy();
  if (server.proxy)
    return Proxy{.url = *server.proxy, .by = ";proxy="};
  const bool is_tls = server.base.starts_with("https:");
  auto [name, value] = is_tls ? first_of({"https_proxy", "HTTPS_PROXY"}, variable)
                              : first_of({"http_proxy"}, variable);
  if (name.empty())
    std::tie(name, value) = first_of({"all_proxy", "ALL_PROXY"}, variable);
  if (name.empty() || server.is_loopback())
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
  auto url = parse_proxy(value);
  if (!url || url->empty())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is no URL of a proxy, such as "
                            "http://proxy.example:3128",
                            name));
  proxy.url = *std::move(url);
  return proxy;
}

}  // namespace kiln::remote
