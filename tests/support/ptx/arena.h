// Memory for tests of the interpreter: stretches of this process, each known by its
// bounds.

#pragma once

#include <list>
#include <span>
#include <vector>

#include "tests/support/ptx/interpreter.h"

namespace kiln::ptx {

/// One thread at a time.
class Arena final : public GlobalMemory {
 public:
  /// The address of a copy; kept until the arena ends.
  template <typename T>
  std::uint64_t add(std::span<const T> values, bool is_read_only = false) {
    Piece& piece = pieces_.emplace_back();
    // Whole vectors of the machine, as cudaMalloc() aligns.
    piece.bytes.resize(values.size_bytes() + 256);
    piece.begin =
        (reinterpret_cast<std::uint64_t>(piece.bytes.data()) + 255) / 256 * 256;
    piece.size = values.size_bytes();
    piece.set.assign(piece.size, 1);
    piece.is_read_only = is_read_only;
    std::copy_n(reinterpret_cast<const std::byte*>(values.data()), piece.size,
                reinterpret_cast<std::byte*>(piece.begin));  // NOLINT
    return piece.begin;
  }
  /// Room that nothing was written to yet.
  std::uint64_t reserve(std::size_t bytes) {
    const std::uint64_t begin =
        add(std::span<const std::byte>(std::vector<std::byte>(bytes)));
    pieces_.back().set.assign(bytes, 0);
    return begin;
  }
  template <typename T>
  [[nodiscard]] std::vector<T> read(std::uint64_t address, std::size_t count) const {
    std::vector<T> values(count);
    std::copy_n(reinterpret_cast<const std::byte*>(address),
                count * sizeof(T),  // NOLINT
                reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

  std::optional<Stretch> find(std::uint64_t address) override {
    for (Piece& piece : pieces_) {
      if (address >= piece.begin && address < piece.begin + piece.size)
        return Stretch{.begin = piece.begin,
                       .end = piece.begin + piece.size,
                       .set = piece.set.data(),
                       .is_read_only = piece.is_read_only};
    }
    return std::nullopt;
  }

 private:
  struct Piece {
    std::vector<std::byte> bytes;
    std::vector<std::uint8_t> set;
    std::uint64_t begin = 0;
    std::size_t size = 0;
    bool is_read_only = false;
  };
  std::list<Piece> pieces_;
};

/// Parameters as an entry has them, each at a multiple of its size.
class Parameters {
 public:
  template <typename T>
  Parameters& add(const T& value) {
    bytes_.resize((bytes_.size() + alignof(T) - 1) / alignof(T) * alignof(T));
    const auto* const from = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof value);
    return *this;
  }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace kiln::ptx
