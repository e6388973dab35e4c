// Who signs what the program writes: a private key file, or a command that holds the
// key, such as one that asks a hardware module.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "build/config.h"
#include "cache/trust.h"
#include "codec/signature.h"
#include "kiln/result.h"
#include "tools/option_set.h"

namespace kiln::tools {

struct SigningOptions {
  std::string key;     // --sign
  std::string signer;  // --signer
  std::string keys;    // --keys
};

/// Declares --sign and --signer. `more` ends the help of the first.
void add_signing_options(OptionSet& cli, SigningOptions& options,
                         const std::string& more = "");
/// Declares --keys; `meaning` is its help.
void add_keys_option(OptionSet& cli, SigningOptions& options,
                     const std::string& meaning);

/// The keys of --keys, else of KILN_REMOTE_KEYS; none without either. Errors:
/// kNotFound, kUntrusted, kInvalidArgument, kIo.
[[nodiscard]] Result<std::vector<PublicKey>> trusted_keys(
    const Config& config, const SigningOptions& options);

/// Whoever --sign, --signer or KILN_REMOTE_SIGN names; none without them. Errors:
/// kInvalidArgument (a signer without its public key in `keys`), those of the key file.
[[nodiscard]] Result<std::vector<Signer>> signers(const Config& config,
                                                  const SigningOptions& options,
                                                  std::span<const PublicKey> keys);

}  // namespace kiln::tools
