// Gives NVRTC, and the heap of its precompiled headers, one place in every process. A
// precompiled header is a copy of that heap, full of pointers into itself and into
// libnvrtc, so another process can use it only if both lie where they lay when it was
// made. Kiln leaves address randomization on, since many containers do not let a
// process turn it off, and since everything else may lie anywhere.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kiln::compile {

/// What NVRTC is told to reserve: 176 MB are enough for CUB. Only used pages cost
/// memory.
inline constexpr std::size_t kPrecompiledHeapBytes = std::size_t{512} << 20U;

/// While one exists, a library of over 32 MiB can only be loaded into the window below
/// kFixedPlace, because all other free addresses are taken. It leaves 32 MiB at both
/// ends of each gap, for a heap and a stack that grow. Does nothing in a build with a
/// sanitizer, whose own memory is there; where it cannot do its work, the library lies
/// elsewhere. Cost: one mmap and one munmap for each gap. Thread safety: one at a time.
class FixedPlace {
 public:
  FixedPlace();
  FixedPlace(const FixedPlace&) = delete;
  FixedPlace& operator=(const FixedPlace&) = delete;
  ~FixedPlace();

  /// Whether an address is in the window.
  [[nodiscard]] static bool is_in_window(std::uint64_t address);

 private:
  std::vector<std::pair<void*, std::size_t>> taken_;
};

/// mmap(), except that a heap of kPrecompiledHeapBytes for nobody's place gets the one
/// at kFixedPlace, if that is free. For the mmap() that kiln-worker exports.
[[nodiscard]] void* map_memory(void* address, std::size_t bytes, int protection,
                               int flags, int fd, off_t offset);

}  // namespace kiln::compile
