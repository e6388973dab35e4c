// The remote caches of a process, from its settings.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "build/config.h"
#include "cache/key_file.h"
#include "codec/signature.h"
#include "kiln/result.h"
#include "process/child_process.h"
#include "remote/client/servers.h"
#include "remote/server_address.h"

namespace kiln {

/// Thread safety: a value.
struct RemoteSetup {
  /// In the order in which they are asked; each has its mode, which is not kOff.
  std::vector<remote::ServerAddress> servers;
  remote::ServerFiles files;
  std::shared_ptr<cache::KeyFile> trusted{};  // null: no file is named
  std::vector<Signer> signers{};  // of uploads; only where a server has kReadWrite
};

/// What the servers are for.
enum class RemoteUse : std::uint8_t {
  kService,  // of a service: asked for what is missing, and sent what is built
  kSend,     // all but those with mode=r of their own are sent to, and none is read
};

/// Without a server no file is read. Errors, each naming the variable or the option:
/// kInvalidArgument: parse_servers(), parse_mode(), a server whose objects need a
/// signature although no key is trusted; those of KeyFile::keys() and
/// PrivateKey::read().
[[nodiscard]] Result<RemoteSetup> remote_setup(const Config& config,
                                               RemoteUse use = RemoteUse::kService);

/// Its servers alone; reads no file. Errors: those of parse_servers() and parse_mode().
[[nodiscard]] Result<std::vector<remote::ServerAddress>> remote_servers(
    const Config& config, RemoteUse use = RemoteUse::kService);

/// What a service asks its remotes with; nullopt: there is none. `signers` take the
/// place of KILN_REMOTE_SIGN, which is not read then. Errors: as remote_setup().
[[nodiscard]] Result<std::optional<remote::RemoteOptions>> remote_options(
    const Config& config, const std::optional<std::vector<Signer>>& signers = {});

/// kiln-remote: beside KILN_WORKER, or where kiln-worker is. Errors: kUnavailable.
[[nodiscard]] Result<ChildCommand> remote_helper(const Config& config);

}  // namespace kiln
