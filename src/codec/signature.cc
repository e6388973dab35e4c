#include "codec/signature.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "util/base64.h"
#include "util/little_endian.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln {
namespace {

constexpr std::string_view kBlockMagic = "KILNSIG\n";
constexpr std::size_t kSignatureBytes = sizeof(KeyId) + sizeof(Ed25519Signature);
constexpr std::string_view kTrustedComment = "trusted comment: ";
constexpr std::string_view kAlgorithm = "Ed";  // of a key
constexpr std::string_view kHashed = "ED";     // of a signature over a hash

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

template <std::size_t kSize>
std::array<std::byte, kSize> array_at(ByteView bytes, std::size_t offset) {
  std::array<std::byte, kSize> found{};
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), kSize,
              found.begin());
  return found;
}

std::string_view next_line(std::string_view& text) {
  std::string_view line = next_part(text, "\n");
  if (line.ends_with('\r'))
    line.remove_suffix(1);
  return line;
}

/// A line of minisign: two letters, a key's id, and `kSize` bytes.
template <std::size_t kSize>
std::optional<std::pair<KeyId, std::array<std::byte, kSize>>> parse_line(
    std::string_view line, std::string_view algorithm) {
  const auto bytes = decode_base64(line);
  if (!bytes || bytes->size() != algorithm.size() + sizeof(KeyId) + kSize ||
      as_text(ByteView(*bytes).first(algorithm.size())) != algorithm)
    return std::nullopt;
  return std::pair{array_at<sizeof(KeyId)>(*bytes, algorithm.size()),
                   array_at<kSize>(*bytes, algorithm.size() + sizeof(KeyId))};
}

std::string make_line(std::string_view algorithm, const KeyId& id, ByteView bytes) {
  Bytes line;
  append(line, as_bytes(algorithm));
  append(line, id);
  append(line, bytes);
  return encode_base64(line);
}

/// What the second signature of a signature file is of.
Bytes with_comment(const Ed25519Signature& signature, std::string_view comment) {
  Bytes message;
  append(message, signature);
  append(message, as_bytes(comment));
  return message;
}

}  // namespace

Blake2bHasher::Blake2bHasher() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
  if (context_ && EVP_DigestInit_ex(context_.get(), EVP_blake2b512(), nullptr) != 1)
    context_.reset();
}

void Blake2bHasher::update(ByteView bytes) {
  if (context_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) != 1)
    context_.reset();
}

Result<Blake2b512> Blake2bHasher::finish() {
  Blake2b512 digest{};
  if (!context_ ||
      EVP_DigestFinal_ex(context_.get(),
                         reinterpret_cast<unsigned char*>(digest.data()), nullptr) != 1)
    return fail(ErrorCode::kUnavailable, "this libcrypto has no BLAKE2b-512");
  return digest;
}

Result<Blake2b512> Blake2bHasher::of(ByteView bytes) {
  Blake2bHasher hasher;
  hasher.update(bytes);
  return hasher.finish();
}

std::string key_name(const KeyId& id) {
  return fmt::format("{:016X}", load_le<std::uint64_t>(id, 0));
}

bool verify(const PublicKey& key, ByteView message, const Ed25519Signature& signature) {
  // The host may share this libcrypto, and takes an error left in the thread's queue
  // for one of its own.
  ERR_set_mark();
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> loaded(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, raw(key.bytes.data()),
                                  key.bytes.size()),
      &EVP_PKEY_free);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(
      EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  const bool holds =
      loaded != nullptr && context != nullptr &&
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, loaded.get()) ==
          1 &&
      EVP_DigestVerify(context.get(), raw(signature.data()), signature.size(),
                       raw(message.data()), message.size()) == 1;
  ERR_pop_to_mark();
  return holds;
}

std::string to_text(const PublicKey& key) {
  return fmt::format("{} minisign public key {}\n{}\n", kMinisignComment,
                     key_name(key.id), make_line(kAlgorithm, key.id, key.bytes));
}

std::optional<PublicKey> parse_public_key(std::string_view line) {
  const auto key = parse_line<sizeof(PublicKey::bytes)>(line, kAlgorithm);
  return key ? std::optional(PublicKey{key->first, key->second}) : std::nullopt;
}

Result<std::string> make_minisig(const Blake2b512& digest, const Signer& signer,
                                 std::string_view trusted_comment) {
  const Ed25519Signature signature = KILN_TRY(signer.sign(digest));
  const Ed25519Signature whole =
      KILN_TRY(signer.sign(with_comment(signature, trusted_comment)));
  return fmt::format("{} signature by kiln, key {}\n{}\n{}{}\n{}\n", kMinisignComment,
                     key_name(signer.key), make_line(kHashed, signer.key, signature),
                     kTrustedComment, trusted_comment, encode_base64(whole));
}

Result<Minisig> parse_minisig(std::string_view minisig) {
  const bool begins = next_line(minisig).starts_with(kMinisignComment);
  const auto line = parse_line<sizeof(Ed25519Signature)>(next_line(minisig), kHashed);
  std::string_view comment = next_line(minisig);
  const auto whole = decode_base64(next_line(minisig));
  if (!begins || !line || !comment.starts_with(kTrustedComment) || !whole ||
      whole->size() != sizeof(Ed25519Signature) || !minisig.empty())
    return refuse("it is no signature as minisign writes it, of a hash");
  comment.remove_prefix(kTrustedComment.size());
  return Minisig{{line->first, line->second},
                 with_comment(line->second, comment),
                 array_at<sizeof(Ed25519Signature)>(*whole, 0)};
}

std::string_view signed_file(std::string_view minisig) {
  constexpr std::string_view kFile = "file:";
  next_line(minisig);
  next_line(minisig);
  std::string_view comment = next_line(minisig);
  comment.remove_prefix(std::min(kTrustedComment.size(), comment.size()));
  while (!comment.empty()) {
    const std::string_view part = next_part(comment, "\t");
    if (part.starts_with(kFile))
      return part.substr(kFile.size());
  }
  return {};
}

Bytes encode_signatures(std::span<const Signature> signatures) {
  Bytes block;
  append(block, as_bytes(kBlockMagic));
  append_le(block, static_cast<std::uint32_t>(signatures.size()));
  for (const auto& [key, bytes] : signatures) {
    append(block, key);
    append(block, bytes);
  }
  append(block, as_bytes(kBlockMagic));
  return block;
}

SignatureBlock signatures_at_end(ByteView bytes) {
  constexpr std::size_t kHead = 12;  // magic and count
  const auto is_magic = [&](std::size_t at) {
    return as_text(bytes.subspan(at, kBlockMagic.size())) == kBlockMagic;
  };
  if (bytes.size() < kBlockMagic.size() || !is_magic(bytes.size() - kBlockMagic.size()))
    return {};
  for (std::size_t count = 1; count <= kMostSignatures; ++count) {
    const std::size_t size = kHead + count * kSignatureBytes + kBlockMagic.size();
    if (size > bytes.size())
      break;
    const ByteView block = bytes.last(size);
    if (!is_magic(bytes.size() - size) ||
        load_le<std::uint32_t>(block, kBlockMagic.size()) != count)
      continue;
    SignatureBlock found{size, {}};
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = kHead + i * kSignatureBytes;
      auto& [key, signature] = found.signatures.emplace_back();
      key = array_at<sizeof(KeyId)>(block, at);
      signature = array_at<sizeof(Ed25519Signature)>(block, at + sizeof(KeyId));
    }
    return found;
  }
  return {};
}

}  // namespace kiln
