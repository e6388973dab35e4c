// Ed25519 signatures as minisign makes them, over the BLAKE2b-512 of what is signed:
// its text forms of public keys and signatures, and Kiln's block of them behind a file.
// cache/FORMAT.md, "Signatures", is the contract. private_key.h signs, trusted_keys.h
// says whose signatures count.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"
#include "util/bytes.h"

struct evp_md_ctx_st;  // of libcrypto

namespace kiln {

/// Names a key, nothing more: two keys may have the same.
using KeyId = std::array<std::byte, 8>;
using Ed25519Signature = std::array<std::byte, 64>;

/// BLAKE2b-512.
using Blake2b512 = std::array<std::byte, 64>;

/// Hashes bytes that arrive in pieces.
/// Thread safety: none; one hasher belongs to one thread.
class Blake2bHasher {
 public:
  Blake2bHasher();

  void update(ByteView bytes);
  /// The hasher must not be used afterwards. Errors: kUnavailable, if this libcrypto
  /// has no BLAKE2b (a FIPS configuration).
  [[nodiscard]] Result<Blake2b512> finish();

  [[nodiscard]] static Result<Blake2b512> of(ByteView bytes);

 private:
  /// Null: it does not work.
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

struct PublicKey {
  KeyId id{};
  std::array<std::byte, 32> bytes{};
  friend bool operator==(const PublicKey&, const PublicKey&) = default;
};

/// Of whom, and the signature.
struct Signature {
  KeyId key{};
  Ed25519Signature bytes{};
  friend bool operator==(const Signature&, const Signature&) = default;
};

/// Signs a message; whose key it is.
struct Signer {
  KeyId key{};
  std::function<Result<Ed25519Signature>(ByteView message)> sign;
};

/// 16 hex digits, as minisign prints them: the number is little-endian.
[[nodiscard]] std::string key_name(const KeyId& id);

/// True if `key` made `signature` of `message`.
[[nodiscard]] bool verify(const PublicKey& key, ByteView message,
                          const Ed25519Signature& signature);

/// minisign's public key file, one line of comment and one of the key.
[[nodiscard]] std::string to_text(const PublicKey& key);

/// The key in a line of such a file; nullopt: it is none.
[[nodiscard]] std::optional<PublicKey> parse_public_key(std::string_view line);
inline constexpr std::string_view kMinisignComment = "untrusted comment:";

/// minisign's signature file for what has `digest`. Errors: those of `signer`.
[[nodiscard]] Result<std::string> make_minisig(const Blake2b512& digest,
                                               const Signer& signer,
                                               std::string_view trusted_comment);

/// A signature file of minisign, taken apart.
struct Minisig {
  Signature signature;
  Bytes message;  // which its second signature is of: the first, and its comment
  Ed25519Signature of_message{};
};
/// Errors: kInvalidArgument: it is no such file, or one of an old minisign that did not
/// hash.
[[nodiscard]] Result<Minisig> parse_minisig(std::string_view minisig);

/// The name of the file that it is of, by its trusted comment, "file:job.kpack"; "" if
/// that names none. Its signatures are not looked at.
[[nodiscard]] std::string_view signed_file(std::string_view minisig);

// The block of signatures behind a pack or an object.

inline constexpr std::size_t kMostSignatures = 16;
inline constexpr std::size_t kLargestSignatureBlock =
    8 + 4 + kMostSignatures * (sizeof(KeyId) + sizeof(Ed25519Signature)) + 8;

[[nodiscard]] Bytes encode_signatures(std::span<const Signature> signatures);

struct SignatureBlock {
  std::size_t size = 0;  // of the block; 0: there is none
  std::vector<Signature> signatures;
};

/// The block at the end of `bytes`, of which the last kLargestSignatureBlock are
/// enough.
[[nodiscard]] SignatureBlock signatures_at_end(ByteView bytes);

}  // namespace kiln
