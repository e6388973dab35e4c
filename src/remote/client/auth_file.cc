#include "remote/client/auth_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "remote/client/credential_sources.h"
#include "remote/server_address.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln::remote {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

/// "a:b", and b may be empty.
bool is_pair(std::string_view text) {
  const std::size_t colon = text.find(':');
  return colon != std::string_view::npos && colon > 0;
}

bool is_aws(std::string_view value) {
  if (value.empty())
    return true;
  const std::string_view first = next_word(value);
  if (first == "profile")
    return is_word(value);
  return is_pair(first) && !first.ends_with(':') && (value.empty() || is_word(value));
}

bool is_sound(const AuthLine& line) {
  if (std::ranges::any_of(line.value,
                          [](unsigned char c) { return c < ' ' || c == 0x7F; }))
    return false;
  if (line.kind == "none")
    return line.value.empty();
  if (line.kind == "bearer")
    return is_word(line.value);
  if (line.kind == "basic")
    return is_pair(line.value);
  if (line.kind == "command")
    return !line.value.empty();
  // No other server gets it.
  if (line.kind == "query")
    return !line.prefix.empty() && is_word(line.value) &&
           line.value.find('#') == std::string::npos;
  return line.kind == "aws" && is_aws(line.value);
}

/// As servers' URLs are compared: scheme and host in lower case, without the scheme's
/// own port and a dot behind the host.
std::string plain_url(std::string_view url) {
  while (url.ends_with('/')) url.remove_suffix(1);
  const std::size_t host = url.find("://") + 3;
  const std::size_t path = std::min(url.find('/', host), url.size());
  std::string server = lower_case(url.substr(0, path));
  const std::string_view port = server.starts_with("https:") ? ":443" : ":80";
  if (server.ends_with(port))
    server.resize(server.size() - port.size());
  if (server.ends_with('.'))
    server.pop_back();
  return server + std::string(url.substr(path));
}

/// Without its number.
AuthLine parse_line(std::string_view text) {
  AuthLine line;
  text = trimmed(text);
  const std::size_t first = std::min(text.find_first_of(kBlanks), text.size());
  if (text.substr(0, first).find("://") != std::string_view::npos) {
    const std::string_view word = next_word(text);
    // The wrong line is still its server's, which no other line is for.
    std::string url(word.substr(0, word.find_first_of("?#;")));
    if (const std::size_t user = url.rfind('@'); user != std::string::npos)
      url.erase(url.find("://") + 3, user - url.find("://") - 2);
    if (url != word)
      line.error = "its URL has a user, an option or a query";
    if (host_of(url).host.empty())
      line.error = "its URL names no host";
    line.prefix = host_of(url).host.empty() ? kNobody : plain_url(url);
  }
  line.kind = next_word(text);
  line.value = text;
  if (line.kind == "query" && line.value.starts_with('?'))
    line.value.erase(0, 1);
  if (line.error.empty() && !is_sound(line))
    line.error = fmt::format("it is none of {}", kAuthForms);
  return line;
}

}  // namespace

std::string_view next_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text = trimmed(text.substr(word.size()));
  return word;
}

Result<std::vector<AuthLine>> parse_auth_file(std::string_view text) {
  std::vector<AuthLine> lines;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view each = trimmed(next_part(text, "\n"));
    if (each.empty() || each.starts_with('#'))
      continue;
    AuthLine line = parse_line(each);
    line.number = number;
    const auto same = std::ranges::find(lines, line.prefix, &AuthLine::prefix);
    if (same != lines.end() && line.prefix != kNobody)
      same->error = line.error =
          fmt::format("lines {} and {} are for the same servers", same->number, number);
    lines.push_back(std::move(line));
  }
  if (lines.empty())
    return refuse("it has no line; one is {}", kAuthForms);
  return lines;
}

const AuthLine* line_for(const std::vector<AuthLine>& lines, std::string_view url) {
  const std::string plain = plain_url(url);
  const AuthLine* best = nullptr;
  for (const AuthLine& line : lines) {
    const std::size_t size = line.prefix.size();
    const bool is_for = size == 0 || (plain.starts_with(line.prefix) &&
                                      (plain.size() == size || plain[size] == '/'));
    if (is_for && (best == nullptr || size > best->prefix.size()))
      best = &line;
  }
  return best;
}

}  // namespace kiln::remote
