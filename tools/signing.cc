#include "tools/signing.h"

#include <algorithm>
#include <chrono>

#include "cache/file_system.h"
#include "cache/key_file.h"
#include "codec/private_key.h"
#include "process/run_command.h"
#include "tools/context.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

Result<Ed25519Signature> sign_by_command(const std::string& command, ByteView message) {
  const std::string output = KILN_TRY(run_command({.name = command,
                                                   .words = {"/bin/sh", "-c", command},
                                                   .input = message,
                                                   .limit = std::chrono::seconds(60)}));
  Ed25519Signature signature{};
  if (output.size() != signature.size())
    return fail(ErrorCode::kUnavailable,
                "--signer {}: it wrote {} bytes, and a signature has {}", command,
                output.size(), signature.size());
  std::ranges::copy(as_bytes(output), signature.begin());
  return signature;
}

/// The one of `keys` that belongs to the command, which signs once to show it.
Result<Signer> command_signer(const std::string& command, const TrustedKeys& keys) {
  const Blake2b512 probe = KILN_TRY(Blake2bHasher::of(as_bytes("kiln")));
  const Ed25519Signature signature = KILN_TRY(sign_by_command(command, probe));
  const auto key = std::ranges::find_if(
      keys.keys, [&](auto& each) { return verify(each.key, probe, signature); });
  if (key == keys.keys.end())
    return refuse(
        "--signer {}: its signature is by none of the {} keys of --keys; name its "
        "public key in --keys",
        command, keys.keys.size());
  return Signer{
      key->key.id,
      [command, own = key->key](ByteView message) -> Result<Ed25519Signature> {
        const auto made = KILN_TRY(sign_by_command(command, message));
        if (!verify(own, message, made))
          return fail(ErrorCode::kUnavailable, "--signer {}: its signature is wrong",
                      command);
        return made;
      }};
}

}  // namespace

void add_signing_options(OptionSet& cli, SigningOptions& options,
                         const std::string& more) {
  cli.option("--sign", options.key, "FILE",
             "Sign with this private key, of `kiln key new` (default: "
             "$KILN_REMOTE_SIGN)" +
                 more);
  cli.option("--signer", options.signer, "COMMAND",
             "Sign by this command of the shell instead: it gets the bytes to sign, "
             "mostly a BLAKE2b-512 digest, on its standard input, and writes the 64 "
             "bytes of the Ed25519 signature; --keys has its public key");
}

Result<std::shared_ptr<const TrustedKeys>> trusted_keys(const Config& config,
                                                        const std::string& keys) {
  const std::filesystem::path path =
      keys.empty() ? config.keys : std::filesystem::path(keys);
  if (path.empty())
    return nullptr;
  cache::KeyFile file(
      cache::real_file_system(),
      cache::TrustPolicy::of_this_process(config.trusted_uids, config.trusted_gids),
      path);
  return from_input(file.keys());
}

Result<std::vector<Signer>> signers(const Config& config, const SigningOptions& options,
                                    const TrustedKeys* keys) {
  std::vector<Signer> found;
  if (!options.signer.empty())
    found.push_back(KILN_TRY(
        command_signer(options.signer, keys != nullptr ? *keys : TrustedKeys())));
  const std::filesystem::path key = options.key.empty() && options.signer.empty()
                                        ? config.sign
                                        : std::filesystem::path(options.key);
  if (!key.empty())
    found.push_back(KILN_TRY(from_input(PrivateKey::read(key))).signer());
  return found;
}

}  // namespace kiln::tools
