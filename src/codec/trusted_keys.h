// Whose signatures count, for what, and how many of them: a file of minisign's public
// keys, with words and lines of Kiln's. cache/FORMAT.md, "Key files", is the contract.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/digest.h"
#include "codec/signature.h"
#include "kiln/result.h"

namespace kiln {

/// What a signature is of. A pack has a name, which the signature covers.
struct SignedThing {
  enum class Kind : std::uint8_t { kObject, kPack };
  Kind kind = Kind::kObject;
  std::string_view name{};
};

/// "job" of "job", "job.kpack" and "job.kpack.zst": compression is no part of a name.
[[nodiscard]] std::string_view bare_pack_name(std::string_view name);

struct TrustedKey {
  PublicKey key;
  bool signs_objects = true;
  bool signs_packs = true;
  std::vector<std::string> packs{};  // patterns of their bare names; empty: any name

  [[nodiscard]] bool may_sign(const SignedThing& thing) const;
};

/// Thread safety: a value.
struct TrustedKeys {
  std::vector<TrustedKey> keys{};      // without those that are revoked
  std::set<KeyId> revoked_keys{};      // count for nothing, also if they are listed
  std::set<Digest> revoked_objects{};  // by key
  std::size_t signatures = 1;          // by so many keys, of each object and pack

  /// True if it has this key, not revoked.
  [[nodiscard]] bool trusts(const KeyId& id) const;
};

/// True if one of them, Signers or Signatures, is by a key that is trusted or revoked.
template <typename Keyed>
[[nodiscard]] bool is_any_known(const Keyed& keyed, const TrustedKeys& trusted) {
  return std::ranges::any_of(keyed, [&](const auto& each) {
    return trusted.trusts(each.key) || trusted.revoked_keys.contains(each.key);
  });
}

/// True if an object that all of `signers` sign has enough signatures.
[[nodiscard]] bool would_believe(std::span<const Signer> signers,
                                 const TrustedKeys& trusted);

/// An empty file is an error, since nobody would be trusted by it. Errors:
/// kInvalidArgument, naming the line.
[[nodiscard]] Result<TrustedKeys> parse_trusted_keys(std::string_view text);

/// The keys that made `signatures` of `digest` and may sign `what`, each once, with
/// those of `beside`, which have signed it elsewhere; no more than are needed. Errors:
/// kUntrusted: they are too few, and why another signature does not count.
[[nodiscard]] Result<std::vector<KeyId>> check_signed(
    const Blake2b512& digest, std::span<const Signature> signatures,
    const TrustedKeys& trusted, const SignedThing& what = {},
    std::span<const PublicKey> beside = {});

/// The key that made `minisig`, a signature file of minisign for a pack with `digest`,
/// and signed its comment. A key that is bound to names needs the name in it. Errors:
/// kUntrusted; those of parse_minisig().
[[nodiscard]] Result<PublicKey> check_minisig(std::string_view minisig,
                                              const Blake2b512& digest,
                                              const TrustedKeys& trusted);

/// The id that `name`, 16 hex digits, is the key_name() of. Errors: kInvalidArgument.
[[nodiscard]] Result<KeyId> parse_key_name(std::string_view name);

}  // namespace kiln
