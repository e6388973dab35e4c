// SHA-256 digests: the value type that names keys and contents, and the hasher.

#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "util/bytes.h"

struct SHA256state_st;  // of libcrypto

namespace kiln {

/// 256 bits; ordered, hashable, printed as 64 lower-case hex digits.
class Digest {
 public:
  static constexpr std::size_t kSize = 32;

  Digest() = default;  // all zero
  explicit Digest(std::span<const std::byte, kSize> bytes);

  /// SHA-256 of `bytes`.
  [[nodiscard]] static Digest of(ByteView bytes);
  /// nullopt unless `hex` is exactly 64 hex digits.
  [[nodiscard]] static std::optional<Digest> from_hex(std::string_view hex);

  [[nodiscard]] std::string hex() const;
  /// Its first 12 digits, for people: unique in any cache that they look at, and short
  /// enough to copy.
  [[nodiscard]] std::string short_hex() const;
  [[nodiscard]] std::span<const std::byte, kSize> bytes() const { return bytes_; }

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads a defaulted <=>
  friend auto operator<=>(const Digest&, const Digest&) = default;

 private:
  std::array<std::byte, kSize> bytes_{};
};

/// SHA-256 over bytes that arrive in pieces (FIPS 180-4, through libcrypto).
/// Thread safety: none; one hasher belongs to one thread.
class Sha256 {
 public:
  Sha256();

  void update(ByteView bytes);
  /// The digest of all bytes so far; the hasher must not be used afterwards.
  [[nodiscard]] Digest finish();

 private:
  std::unique_ptr<SHA256state_st, void (*)(SHA256state_st*)> state_;
};

}  // namespace kiln

template <>
struct std::hash<kiln::Digest> {
  std::size_t operator()(const kiln::Digest& digest) const noexcept {
    // A SHA-256 is uniform: its first bytes are as good a hash as any.
    std::size_t value = 0;
    for (std::size_t i = 0; i < sizeof(value); ++i)
      value = value << 8U | std::to_integer<std::size_t>(digest.bytes()[i]);
    return value;
  }
};
