// A pack on a remote cache: one file under a name, and its signature file beside it.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "cache/trust.h"
#include "kiln/result.h"
#include "remote/client/body_file.h"
#include "tools/remote/remote_run.h"

namespace kiln::tools {

/// `<base>/packs/<name>.kpack`, and what minisign says of it.
struct RemotePack {
  remote::BodyFile file;
  std::uint64_t bytes = 0;
  std::string minisig;     // empty: none
  bool is_signed = false;  // by it, or itself
};

/// A name that every server takes. Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_pack_name(const std::string& name);

/// Sends it to server number `server`, where it replaces what has that name, and looks
/// at its end there. Errors: those of the server.
[[nodiscard]] Result<void> send_pack(RemoteRun& run, std::size_t server,
                                     const std::string& name, const RemotePack& pack);

/// Whether the pack that a server has sent is used. A server whose pack is refused is
/// not asked for it any more. A failure of this machine (kIo) ends the search.
using PackCheck = std::function<Result<void>(std::size_t server, std::uint64_t bytes)>;

/// Asks each server for it, until `into` has one that passes `check`, and again until
/// `wait` is over. Goes on behind what came of a transfer that was cut. Errors:
/// kNotFound; of a server whose pack is not used, else of one that fails.
[[nodiscard]] Result<void> fetch_pack(RemoteRun& run, const std::string& name,
                                      std::chrono::milliseconds wait,
                                      const remote::BodyFile& into,
                                      const PackCheck& check);

/// The signature file beside that pack; "" if server number `server` has none. Errors:
/// those of the server.
[[nodiscard]] Result<std::string> fetch_minisig(RemoteRun& run, std::size_t server,
                                                const std::string& name);

}  // namespace kiln::tools
