#include "codec/trusted_keys.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "util/bytes.h"
#include "util/little_endian.h"
#include "util/text.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln {
namespace {

constexpr std::string_view kBlanks = " \t";

/// The word before the next blank; "" at the end of the line, or of what counts of it.
std::string_view next_word(std::string_view& line) {
  line = trimmed(line, kBlanks);
  if (line.starts_with('#'))
    line = {};
  return next_part(line, kBlanks);
}

Result<void> read_revoked(std::string_view& line, TrustedKeys& trusted) {
  const std::string_view what = next_word(line);
  const std::string_view name = next_word(line);
  if (what == "key")
    trusted.revoked_keys.insert(KILN_TRY(parse_key_name(name)));
  else if (const auto object = Digest::from_hex(name); what == "object" && object)
    trusted.revoked_objects.insert(*object);
  else
    return refuse(
        "it is neither 'revoked key' with the 16 digits of the key's name nor 'revoked "
        "object' with the 64 digits of the object's key");
  return {};
}

/// The words behind a key.
Result<void> read_words(std::string_view line, TrustedKey& trusted) {
  std::string_view kinds;
  for (std::string_view word; !(word = next_word(line)).empty();) {
    std::string_view value = word;
    const std::string_view name = next_part(value, "=");
    if (name == "packs" && trusted.packs.empty() && !value.empty())
      while (!value.empty())
        trusted.packs.emplace_back(bare_pack_name(next_part(value, ",")));
    else if (name == "kinds" && kinds.empty() &&
             (value == "packs" || value == "objects" || value == "packs,objects"))
      kinds = value;
    else
      return refuse(
          "'{}': behind a key may stand packs=PATTERN,PATTERN and kinds=packs, "
          "kinds=objects or kinds=packs,objects, each once",
          word);
  }
  // A key for some packs alone could else sign every object.
  if (kinds.empty() && !trusted.packs.empty())
    kinds = "packs";
  if (kinds == "objects" && !trusted.packs.empty())
    return refuse("packs= and kinds=objects exclude each other");
  trusted.signs_objects = kinds != "packs";
  trusted.signs_packs = kinds != "objects";
  return {};
}

Result<void> read_line(std::string_view line, TrustedKeys& trusted) {
  const std::string_view first = next_word(line);
  if (first == "revoked") {
    KILN_TRY(read_revoked(line, trusted));
  } else if (first == "signatures") {
    const auto wanted = KILN_TRY(parse_number(next_word(line), {1, kMostSignatures}));
    trusted.signatures = std::max(trusted.signatures, wanted);
  } else if (!first.empty()) {
    const auto key = parse_public_key(first);
    if (!key)
      return refuse("it is no public key as minisign writes it");
    return read_words(line, trusted.keys.emplace_back(TrustedKey{*key}));
  }
  const std::string_view more = next_word(line);
  return more.empty() ? Result<void>() : refuse("'{}' is too much", more);
}

bool has_bytes(std::span<const PublicKey> keys, const PublicKey& key) {
  return std::ranges::find(keys, key.bytes, &PublicKey::bytes) != keys.end();
}

/// Why a signature by this key does not count.
std::string why_not(const KeyId& id, const TrustedKeys& trusted,
                    const SignedThing& what) {
  std::string why =
      fmt::format("which is none of the {} trusted keys", trusted.keys.size());
  if (trusted.revoked_keys.contains(id))
    why = "which is revoked";
  for (const TrustedKey& each : trusted.keys) {
    if (each.key.id == id && each.may_sign(what))
      return "its signature is wrong: its bytes were changed";
    if (each.key.id == id)
      why = what.kind == SignedThing::Kind::kObject
                ? "which may sign no objects"
                : fmt::format("which may sign no pack of the name '{}'", what.name);
  }
  return fmt::format("it is signed by the key {}, {}", key_name(id), why);
}

}  // namespace

std::string_view bare_pack_name(std::string_view name) {
  for (const std::string_view ending : {".zst", ".kpack"}) {
    if (name.ends_with(ending))
      name.remove_suffix(ending.size());
  }
  return name;
}

bool TrustedKey::may_sign(const SignedThing& thing) const {
  if (thing.kind == SignedThing::Kind::kObject)
    return signs_objects;
  const std::string name(bare_pack_name(thing.name));
  return signs_packs &&
         (packs.empty() || std::ranges::any_of(packs, [&](auto& pattern) {
            return !name.empty() && ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
          }));
}

bool TrustedKeys::trusts(const KeyId& id) const {
  return std::ranges::any_of(keys, [&](auto& each) { return each.key.id == id; });
}

bool would_believe(std::span<const Signer> signers, const TrustedKeys& trusted) {
  std::vector<PublicKey> by;
  for (const TrustedKey& each : trusted.keys) {
    if (each.signs_objects && !has_bytes(by, each.key) &&
        std::ranges::find(signers, each.key.id, &Signer::key) != signers.end())
      by.push_back(each.key);
  }
  return by.size() >= trusted.signatures;
}

Result<TrustedKeys> parse_trusted_keys(std::string_view text) {
  TrustedKeys trusted;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = trimmed(next_part(text, "\n"));
    if (!line.starts_with(kMinisignComment))
      KILN_TRY(about(fmt::format("line {}", number), read_line(line, trusted)));
  }
  if (trusted.keys.empty())
    return refuse("it has no public key");
  std::set<decltype(PublicKey::bytes)> different;
  std::set<decltype(PublicKey::bytes)> revoked;  // also under another id
  for (const auto& [key, objects, packs, names] : trusted.keys) {
    different.insert(key.bytes);
    if (trusted.revoked_keys.contains(key.id))
      revoked.insert(key.bytes);
  }
  if (different.size() < trusted.signatures)
    return refuse("it wants {} signatures, and has {} keys", trusted.signatures,
                  different.size());
  std::erase_if(trusted.keys,
                [&](auto& each) { return revoked.contains(each.key.bytes); });
  return trusted;
}

Result<std::vector<KeyId>> check_signed(const Blake2b512& digest,
                                        std::span<const Signature> signatures,
                                        const TrustedKeys& trusted,
                                        const SignedThing& what,
                                        std::span<const PublicKey> beside) {
  std::vector<PublicKey> by(beside.begin(), beside.end());
  std::string why;
  for (const auto& [id, signature] : signatures) {
    for (const TrustedKey& each : trusted.keys) {
      if (by.size() < trusted.signatures && each.key.id == id && each.may_sign(what) &&
          !has_bytes(by, each.key) && verify(each.key, digest, signature))
        by.push_back(each.key);
    }
    if (why.empty() && std::ranges::find(by, id, &PublicKey::id) == by.end())
      why = why_not(id, trusted, what);
  }
  std::vector<KeyId> ids;
  for (const PublicKey& each : by) ids.push_back(each.id);
  if (by.size() >= trusted.signatures)
    return ids;
  if (!by.empty())
    why = fmt::format("it needs signatures by {} trusted keys, and has {}{}{}",
                      trusted.signatures, by.size(), why.empty() ? "" : "; ", why);
  return fail(ErrorCode::kUntrusted, why.empty() ? "it has no signature" : why);
}

Result<PublicKey> check_minisig(std::string_view minisig, const Blake2b512& digest,
                                const TrustedKeys& trusted) {
  const auto [signature, message, of_message] = KILN_TRY(parse_minisig(minisig));
  const SignedThing what{SignedThing::Kind::kPack, signed_file(minisig)};
  for (const TrustedKey& each : trusted.keys) {
    if (each.key.id != signature.key || !each.may_sign(what) ||
        !verify(each.key, digest, signature.bytes))
      continue;
    if (verify(each.key, message, of_message))
      return each.key;
    return fail(ErrorCode::kUntrusted, "the signature of its comment is wrong");
  }
  return fail(ErrorCode::kUntrusted, why_not(signature.key, trusted, what));
}

Result<KeyId> parse_key_name(std::string_view name) {
  KeyId id{};
  const auto bytes = from_hex(name);
  if (!bytes || bytes->size() != id.size())
    return refuse(
        "'{}' is no name of a key: 16 hex digits, as `kiln key show` prints them",
        name);
  std::ranges::reverse_copy(*bytes, id.begin());
  return id;
}

}  // namespace kiln
