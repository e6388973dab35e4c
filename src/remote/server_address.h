// Where a remote cache is and how it is spoken to: the value of KILN_REMOTE, and the
// URLs of what a server has.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/digest.h"
#include "kiln/result.h"

namespace kiln::remote {

enum class Layout : std::uint8_t {
  kObjects,  // <base>/objects/v1/<2 hex>/<62 hex>: as a cache root lies on disk
  kBazel,    // <base>/ac/<64 hex>: bazel-remote without validation of AC
};

enum class Mode : std::uint8_t { kOff, kRead, kReadWrite };

/// "off", "r", "rw". Errors: kInvalidArgument.
[[nodiscard]] Result<Mode> parse_mode(const std::string& text);

/// Thread safety: a value.
struct ServerAddress {
  std::string base{};  // http, https or file; no slash at the end, no user, no query
  Layout layout = Layout::kObjects;
  std::optional<Mode> mode{};  // none: that of KILN_REMOTE_MODE
  bool takes_unsigned = false;
  std::string region{};  // of S3; empty: none
  /// Its URL, without a user; empty: there is none; nullopt: see find_proxy().
  std::optional<std::string> proxy{};

  [[nodiscard]] std::string object_url(const Digest& key) const;
  /// Of a name that is_pack_name() takes: <base>/packs/<name>.kpack, or <name> alone if
  /// it ends in .kpack or .kpack.zst. The URL of its signature is this one and
  /// ".minisig".
  [[nodiscard]] std::string pack_url(std::string_view name) const;
  friend bool operator==(const ServerAddress&, const ServerAddress&) = default;
};

/// As AWS names its regions: letters, digits and '-'.
[[nodiscard]] bool is_region(std::string_view text);
/// Letters, digits, '-', '_' and '.', and none of the last three at the beginning.
[[nodiscard]] bool is_pack_name(std::string_view name);

/// Of an http or https URL: the host in lower case and without brackets, and the port.
struct HostAndPort {
  std::string host;
  std::string port;
};
[[nodiscard]] HostAndPort host_of(std::string_view url);

/// The URL of a proxy; "" is none. Without a scheme it is http://. Errors:
/// kInvalidArgument: another scheme than http, https and socks; a user or a password.
[[nodiscard]] Result<std::string> parse_proxy(std::string_view text);

/// "https://c/kiln;layout=bazel;unsigned=1;mode=rw;region=us-east-1;proxy=", with
/// spaces between servers, in the order in which they are asked. Errors:
/// kInvalidArgument: no http, https or file URL; a user or password in it; an unknown
/// or repeated option, with the nearest match; a server that is there twice.
[[nodiscard]] Result<std::vector<ServerAddress>> parse_servers(const std::string& text);

}  // namespace kiln::remote
