// Who signs what the program writes: a private key file, or a command that holds the
// key, such as one that asks a hardware module.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "build/config.h"
#include "cache/trust.h"
#include "codec/signature.h"
#include "codec/trusted_keys.h"
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

/// The keys of --keys, else of KILN_REMOTE_KEYS; null without either. Errors:
/// kNotFound, kUntrusted, kInvalidArgument, kIo.
[[nodiscard]] Result<std::shared_ptr<const TrustedKeys>> trusted_keys(
    const Config& config, const std::string& keys = "");

/// Whoever --sign, --signer or KILN_REMOTE_SIGN names; none without them. Errors:
/// kInvalidArgument (a signer without its public key in `keys`, which may be null),
/// those of the key file.
[[nodiscard]] Result<std::vector<Signer>> signers(const Config& config,
                                                  const SigningOptions& options,
                                                  const TrustedKeys* keys);

}  // namespace kiln::tools
