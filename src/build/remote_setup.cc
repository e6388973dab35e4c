#include "build/remote_setup.h"

#include <algorithm>
#include <string_view>

#include "build/artifact.h"
#include "cache/file_system.h"
#include "cache/trust.h"
#include "codec/private_key.h"
#include "compile/pool/worker_path.h"
#include "compile/pool/worker_pool.h"
#include "util/absolute_path.h"
#include "util/try.h"

namespace kiln {
namespace {

constexpr const char* kHelper = "kiln-remote";

}  // namespace

Result<std::vector<remote::ServerAddress>> remote_servers(const Config& config,
                                                          RemoteUse use) {
  const bool sends = use == RemoteUse::kSend;
  const RemoteSettings& from = config.remote;
  auto mode = KILN_TRY(about(from.mode_by.name, remote::parse_mode(from.mode)));
  if (sends && mode == remote::Mode::kRead)
    mode = remote::Mode::kReadWrite;
  auto servers =
      KILN_TRY(about(from.servers_by.name, remote::parse_servers(from.servers)));
  for (remote::ServerAddress& server : servers)
    server.mode = server.mode.value_or(mode);
  std::erase_if(servers, [&](const remote::ServerAddress& server) {
    return server.mode == remote::Mode::kOff ||
           (sends && server.mode != remote::Mode::kReadWrite);
  });
  return servers;
}

Result<RemoteSetup> remote_setup(const Config& config, RemoteUse use) {
  const bool sends = use == RemoteUse::kSend;
  const RemoteSettings& from = config.remote;
  RemoteSetup setup{.servers = KILN_TRY(remote_servers(config, use)),
                    .files = {absolute_path(from.auth), absolute_path(from.ca),
                              absolute_path(from.certificate)}};
  if (!setup.servers.empty() && !config.keys.empty()) {
    setup.trusted = std::make_shared<cache::KeyFile>(
        cache::real_file_system(),
        cache::TrustPolicy::of_this_process(config.trusted_uids, config.trusted_gids),
        config.keys);
    KILN_TRY(setup.trusted->keys());
  }
  for (const remote::ServerAddress& server : setup.servers) {
    if (sends || server.takes_unsigned || setup.trusted != nullptr)
      continue;
    return refuse(
        "{}: {}: no key is trusted, so none of its objects can be used; name a file of "
        "public keys by KILN_REMOTE_KEYS (--keys), or say {};unsigned=1 if all writers "
        "of this server are trusted",
        from.servers_by.name, server.base, server.base);
  }
  const bool uploads =
      std::ranges::any_of(setup.servers, [](const remote::ServerAddress& server) {
        return server.mode == remote::Mode::kReadWrite;
      });
  if (uploads && !config.sign.empty())
    setup.signers.push_back(KILN_TRY(PrivateKey::read(config.sign)).signer());
  return setup;
}

Result<std::optional<remote::RemoteOptions>> remote_options(
    const Config& config, const std::optional<std::vector<Signer>>& signers) {
  Config read = config;
  if (signers)
    read.sign.clear();
  RemoteSetup setup = KILN_TRY(remote_setup(read));
  if (setup.servers.empty())
    return std::nullopt;
  if (signers)
    setup.signers = *signers;
  return remote::RemoteOptions{.servers = std::move(setup.servers),
                               .files = std::move(setup.files),
                               .trusted = std::move(setup.trusted),
                               .signers = std::move(setup.signers),
                               .payload_check = check_stored_payload,
                               .helper = [config] { return remote_helper(config); },
                               .wait = config.remote.wait,
                               .has_rank = config.rank.has_value()};
}

Result<ChildCommand> remote_helper(const Config& config) {
  compile::WorkerSearch search{.name = kHelper,
                               .set_by = config.worker_by.name,
                               .remedy =
                                   "Kiln is built with kiln-remote where the headers "
                                   "of libcurl 7.85 or later are found"};
  // The setting names the compile worker; the helper of that build is beside it.
  if (config.worker)
    search.path = config.worker->parent_path() / kHelper;
  return ChildCommand{.path = KILN_TRY(compile::find_worker(search)),
                      .environment = compile::worker_environment(),
                      .name = "remote helper"};
}

}  // namespace kiln
