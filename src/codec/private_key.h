// Private Ed25519 keys: PKCS#8 in PEM, as `openssl genpkey` writes them.

#pragma once

#include <filesystem>
#include <string>

#include "codec/signature.h"
#include "kiln/result.h"

namespace kiln {

/// Thread safety: a value.
class PrivateKey {
 public:
  /// A new one. Errors: kUnavailable.
  [[nodiscard]] static Result<PrivateKey> generate();

  /// Errors: kUntrusted, if another user owns the file or can read it;
  /// kInvalidArgument, if it has no Ed25519 key or one behind a password; kNotFound;
  /// kIo.
  [[nodiscard]] static Result<PrivateKey> read(const std::filesystem::path& path);

  /// Its id is made from its bytes, so that a private key needs no id of its own.
  [[nodiscard]] const PublicKey& public_key() const { return public_; }
  [[nodiscard]] Result<std::string> to_pem() const;
  [[nodiscard]] Signer signer() const;

 private:
  explicit PrivateKey(std::shared_ptr<void> key);

  std::shared_ptr<void> key_;  // an EVP_PKEY
  PublicKey public_;
};

}  // namespace kiln
