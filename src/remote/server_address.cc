#include "remote/server_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "util/ascii.h"
#include "util/nearest.h"
#include "util/text.h"
#include "util/trailing_options.h"
#include "util/try.h"

namespace kiln::remote {
namespace {

bool is_alphanumeric(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

/// The part of an http or https URL that names a host, or "" for other URLs.
std::string_view authority_of(std::string_view url) {
  const std::size_t begin = url.find("://");
  if (begin == std::string_view::npos)
    return {};
  constexpr std::size_t kSeparator = 3;
  url.remove_prefix(begin + kSeparator);
  return url.substr(0, url.find_first_of("/?#"));
}

Result<std::string> parse_base(std::string_view url) {
  // First, so that no message shows a password.
  if (authority_of(url).find('@') != std::string_view::npos)
    return refuse(
        "a server's URL has a user or a password in it; write them into the "
        "file that KILN_REMOTE_AUTH names");
  constexpr std::string_view kFile = "file://";
  const bool is_file = url.starts_with(kFile);
  if (!is_file && !url.starts_with("http://") && !url.starts_with("https://"))
    return refuse("'{}' is no URL that begins with https://, http:// or file://",
                  url.substr(0, url.find_first_of("?#")));
  if (const auto query = url.find_first_of("?#"); query != std::string_view::npos)
    return refuse(
        "'{}' goes on with ? or #; write a query, such as a SAS, into the file "
        "that KILN_REMOTE_AUTH names: 'URL query STRING'",
        url.substr(0, query));
  if (std::ranges::any_of(url, [](unsigned char c) { return c <= ' ' || c == 0x7F; }))
    return refuse("'{}' has a character that no URL has", url);
  if (is_file && !url.substr(kFile.size()).starts_with('/'))
    return refuse("'{}' is no absolute path: file:///srv/kiln", url);
  if (!is_file && authority_of(url).empty())
    return refuse("'{}' names no host", url);
  while (url.ends_with('/') && url.size() > kFile.size() + 1) url.remove_suffix(1);
  return std::string(url);
}

Result<Layout> parse_layout(const std::string& text) {
  if (text == "objects")
    return Layout::kObjects;
  if (text == "bazel")
    return Layout::kBazel;
  return refuse("'{}' is neither objects nor bazel", text);
}

Result<bool> parse_unsigned(const std::string& text) {
  if (text == "0" || text == "1")
    return text == "1";
  return refuse("'{}' is neither 1 nor 0", text);
}

Result<std::string> parse_region(const std::string& text) {
  return is_region(text) ? Result<std::string>(text)
                         : refuse("'{}' is no region such as us-east-1", text);
}

/// Sets the option `name`. Errors: those of its value; an unknown name.
Result<void> set_option(ServerAddress& server, const std::string& name,
                        const std::string& value) {
  const std::array<std::string, 5> names{"layout", "mode", "proxy", "region",
                                         "unsigned"};
  if (name == "layout")
    server.layout = KILN_TRY(parse_layout(value));
  else if (name == "mode")
    server.mode = KILN_TRY(parse_mode(value));
  else if (name == "proxy" && server.base.starts_with("file:"))
    return refuse("a folder is reached through no proxy");
  else if (name == "proxy")
    server.proxy = KILN_TRY(parse_proxy(value));
  else if (name == "region")
    server.region = KILN_TRY(parse_region(value));
  else if (name == "unsigned")
    server.takes_unsigned = KILN_TRY(parse_unsigned(value));
  else
    return refuse("there is no option '{}'{}", name, did_you_mean(name, names));
  return {};
}

Result<ServerAddress> parse_server(std::string_view text) {
  ServerAddress server;
  server.base = KILN_TRY(parse_base(next_part(text, ";")));
  KILN_TRY(read_options(server.base, text,
                        [&](const std::string& name, const std::string& value) {
                          return set_option(server, name, value);
                        }));
  return server;
}

}  // namespace

Result<Mode> parse_mode(const std::string& text) {
  if (text == "off")
    return Mode::kOff;
  if (text == "r")
    return Mode::kRead;
  if (text == "rw")
    return Mode::kReadWrite;
  return refuse("'{}' is none of off, r and rw", text);
}

HostAndPort host_of(std::string_view url) {
  const std::string_view authority = authority_of(url);
  HostAndPort found{.host = lower_case(authority),
                    .port = url.starts_with("https:") ? "443" : "80"};
  const std::size_t colon = authority.rfind(':');
  const std::size_t bracket = authority.rfind(']');
  if (colon != std::string_view::npos &&
      (bracket == std::string_view::npos || bracket < colon)) {
    found.port = authority.substr(colon + 1);
    found.host.resize(colon);
  }
  if (bracket != std::string_view::npos && found.host.starts_with('['))
    found.host = found.host.substr(1, bracket - 1);
  return found;
}

bool is_region(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return is_alphanumeric(c) || c == '-';
  });
}

Result<std::string> parse_proxy(std::string_view text) {
  constexpr std::array<std::string_view, 6> kSchemes{"http",    "https",  "socks4",
                                                     "socks4a", "socks5", "socks5h"};
  if (text.empty())
    return std::string();
  // First, so that no message shows a password.
  if (text.find('@') != std::string_view::npos)
    return refuse(
        "the proxy's URL has a user or a password in it; write them into the "
        "file that KILN_REMOTE_AUTH names, or into the variable https_proxy");
  std::string url = text.find("://") == std::string_view::npos
                        ? fmt::format("http://{}", text)
                        : std::string(text);
  while (url.ends_with('/')) url.pop_back();
  const std::string_view scheme = std::string_view(url).substr(0, url.find("://"));
  const auto [host, port] = host_of(url);
  if (std::ranges::find(kSchemes, scheme) == kSchemes.end() || host.empty() ||
      !url.ends_with(authority_of(url)) || url.find(' ') != std::string::npos ||
      port.empty() || !std::ranges::all_of(port, is_digit))
    return refuse("it is no URL of a proxy, such as http://proxy.example:3128");
  return url;
}

std::string ServerAddress::object_url(const Digest& key) const {
  const std::string hex = key.hex();
  if (layout == Layout::kBazel)
    return fmt::format("{}/ac/{}", base, hex);
  constexpr std::size_t kFolder = 2;
  return fmt::format("{}/objects/v1/{}/{}", base, hex.substr(0, kFolder),
                     hex.substr(kFolder));
}

std::string ServerAddress::pack_url(std::string_view name) const {
  const bool is_whole = name.ends_with(".kpack") || name.ends_with(".kpack.zst");
  return fmt::format("{}/packs/{}{}", base, name, is_whole ? "" : ".kpack");
}

bool is_pack_name(std::string_view name) {
  return !name.empty() && is_alphanumeric(name.front()) &&
         std::ranges::all_of(name, [](char c) {
           return is_alphanumeric(c) || c == '-' || c == '_' || c == '.';
         });
}

Result<std::vector<ServerAddress>> parse_servers(const std::string& text) {
  std::vector<ServerAddress> servers;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view part = next_part(rest, " \t\n");
    if (part.empty())
      continue;
    ServerAddress server = KILN_TRY(parse_server(part));
    if (std::ranges::find(servers, server.base, &ServerAddress::base) != servers.end())
      return refuse("'{}' is given twice", server.base);
    servers.push_back(std::move(server));
  }
  return servers;
}

}  // namespace kiln::remote
