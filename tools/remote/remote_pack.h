// A pack on a remote cache: one file under a name, and its signature file beside it.

#pragma once

#include <chrono>
#include <string>

#include "cache/trust.h"
#include "kiln/result.h"
#include "tools/remote/remote_run.h"

namespace kiln::tools {

/// `<base>/packs/<name>.kpack`, as bytes, and what minisign says of them.
struct RemotePack {
  std::string bytes;
  std::string minisig;  // empty: none
};

/// A name that every server takes. Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_pack_name(const std::string& name);

/// Sends it to server number `server`, where it replaces what has that name. Errors:
/// those of the server.
[[nodiscard]] Result<void> send_pack(RemoteRun& run, std::size_t server,
                                     const std::string& name, const RemotePack& pack);

/// What the first server that has it sends, in one request. It is asked for again until
/// `wait` is over. Checks nothing. Errors: kNotFound; those of the server.
struct FetchedPack {
  std::string bytes;
  std::size_t server = 0;
};
[[nodiscard]] Result<FetchedPack> fetch_pack(RemoteRun& run, const std::string& name,
                                             std::chrono::milliseconds wait);

/// The signature file beside that pack; "" if server number `server` has none. Errors:
/// those of the server.
[[nodiscard]] Result<std::string> fetch_minisig(RemoteRun& run, std::size_t server,
                                                const std::string& name);

}  // namespace kiln::tools
