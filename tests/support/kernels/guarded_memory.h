// Memory that a kernel may touch: the interpreter knows its bounds and whether a kernel
// may write there. Around it are pages that nobody may touch, for the code of the host.
// An access to a wrong row of the right tensor is within its bounds: tests put NaN into
// the other rows.

#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kiln_cpu {

/// Which end of the memory lies exactly at an inaccessible page.
enum class Side : std::uint8_t { kBegin, kEnd };

struct Placement {
  Side exact = Side::kEnd;
  /// Where memory begins, in bytes after a 16-byte boundary. Unset: at the boundary for
  /// kBegin; for kEnd wherever the size leads, so that the last byte is the page's
  /// last. With a value the exact side is off by less than 16 bytes.
  std::optional<std::size_t> past_boundary{};
};

/// Owns its pages. Fresh memory is all zero and takes no room until it is touched, so
/// that a tensor of many gigabytes can be had. Thread safety: none, all of them
/// together.
class GuardedMemory {
 public:
  static constexpr std::size_t kGuardBytes = std::size_t{1} << 20;

  /// `name` is what reports call it. Ends the program where there is no address space.
  GuardedMemory(std::string name, std::size_t bytes, Placement placement);
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory();

  [[nodiscard]] std::byte* data() { return begin_; }
  [[nodiscard]] const std::byte* data() const { return begin_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  [[nodiscard]] const std::string& name() const { return name_; }

  /// After make_read_only(), of an input, a write is reported.
  void make_read_only() { protect(PROT_READ); }
  void make_writable() { protect(PROT_READ | PROT_WRITE); }
  [[nodiscard]] bool is_writable() const { return is_writable_; }

  /// "byte 64 of x, which has 64 bytes" for an address in or around this memory,
  /// nothing for any other.
  [[nodiscard]] std::optional<std::string> describe(std::uintptr_t address) const;

  /// describe() of whichever memory there is around `address`.
  [[nodiscard]] static std::string describe_any(std::uintptr_t address);
  /// Every one that there is now.
  [[nodiscard]] static const std::vector<GuardedMemory*>& all();

 private:
  void protect(int access);

  std::string name_;
  std::size_t bytes_;
  std::byte* map_ = nullptr;  // guard, pages, guard
  std::size_t page_bytes_;    // of the pages between the guards
  std::byte* begin_ = nullptr;
  bool is_writable_ = true;
};

}  // namespace kiln_cpu
