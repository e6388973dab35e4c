#include "tools/signing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "cache/file_system.h"
#include "cache/seeds.h"
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
                fmt::format("--signer {}: it wrote {} bytes, and a signature has {}",
                            command, output.size(), signature.size()));
  std::ranges::copy(as_bytes(output), signature.begin());
  return signature;
}

/// The one of `keys` that belongs to the command, which signs once to show it.
Result<Signer> command_signer(const std::string& command,
                              std::span<const PublicKey> keys) {
  const Blake2b512 probe = KILN_TRY(Blake2bHasher::of(as_bytes("kiln")));
  const Ed25519Signature signature = KILN_TRY(sign_by_command(command, probe));
  const auto key = std::ranges::find_if(
      keys, [&](const PublicKey& each) { return verify(each, probe, signature); });
  if (key == keys.end())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--signer {}: its signature is by none of the {} keys of "
                            "--keys; name its public key in --keys",
                            command, keys.size()));
  return Signer{
      key->id, [command, own = *key](ByteView message) -> Result<Ed25519Signature> {
        const auto made = KILN_TRY(sign_by_command(command, message));
        if (!verify(own, message, made))
          return fail(ErrorCode::kUnavailable,
                      fmt::format("--signer {}: its signature is wrong", command));
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

void add_keys_option(OptionSet& cli, SigningOptions& options,
                     const std::string& meaning) {
  cli.option("--keys", options.keys, "FILE", meaning);
}

Result<std::vector<PublicKey>> trusted_keys(const Config& config,
                                            const SigningOptions& options) {
  const std::filesystem::path path =
      options.keys.empty() ? config.keys : std::filesystem::path(options.keys);
  if (path.empty())
    return std::vector<PublicKey>();
  return from_input(cache::read_trusted_keys(
      cache::real_file_system(),
      cache::TrustPolicy::of_this_process(config.trusted_uids, config.trusted_gids),
      path));
}

Result<std::vector<Signer>> signers(const Config& config, const SigningOptions& options,
                                    std::span<const PublicKey> keys) {
  std::vector<Signer> found;
  if (!options.signer.empty())
    found.push_back(KILN_TRY(command_signer(options.signer, keys)));
  const std::filesystem::path key = options.key.empty() && options.signer.empty()
                                        ? config.sign
                                        : std::filesystem::path(options.key);
  if (!key.empty())
    found.push_back(KILN_TRY(from_input(PrivateKey::read(key))).signer());
  return found;
}

}  // namespace kiln::tools
