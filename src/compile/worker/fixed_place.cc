#include "compile/worker/fixed_place.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "util/proc_file.h"
#include "util/text.h"

namespace kiln::compile {
namespace {

// Between the highest place of a program and the lowest of its libraries, whatever
// vm.mmap_rnd_bits is. 0: PCHs are not shared.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uintptr_t kFixedPlace = 0;
#elif defined(__x86_64__)
constexpr std::uintptr_t kFixedPlace = 0x6a0000000000;
#elif defined(__aarch64__)
constexpr std::uintptr_t kFixedPlace = 0xd00000000000;
#else
constexpr std::uintptr_t kFixedPlace = 0;
#endif
constexpr std::uintptr_t kWindowBytes = std::uintptr_t{4} << 30U;
constexpr std::uintptr_t kMarginBytes = std::uintptr_t{32} << 20U;

struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

// NOLINTBEGIN(readability-function-size,performance-no-int-to-ptr): as mmap()
void* system_mmap(std::uintptr_t address, std::size_t bytes, int protection, int flags,
                  int fd, off_t offset) {
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
}
// NOLINTEND(readability-function-size,performance-no-int-to-ptr)

/// "7f12…-7f13… r-xp …", a line of /proc/self/maps.
std::optional<Range> mapping_in(std::string_view line) {
  Range range;
  const char* const last = line.data() + line.size();
  const auto begin = std::from_chars(line.data(), last, range.begin, 16);
  if (begin.ec != std::errc{} || begin.ptr == last || *begin.ptr != '-')
    return std::nullopt;
  if (std::from_chars(begin.ptr + 1, last, range.end, 16).ec != std::errc{})
    return std::nullopt;
  return range;
}

/// Between the mappings of this process, without the window.
std::vector<Range> gaps(std::string_view maps) {
  std::vector<Range> found;
  const auto add = [&found](std::uintptr_t begin, std::uintptr_t end) {
    if (begin < end && end - begin > 2 * kMarginBytes)
      found.push_back({begin + kMarginBytes, end - kMarginBytes});
  };
  std::uintptr_t end = 0;
  while (!maps.empty()) {
    const auto line = next_part(maps, "\n");
    const auto mapping = mapping_in(line);
    if (!mapping)
      continue;
    // A margin at the window would be a place for a library.
    if (end < kFixedPlace && mapping->begin >= kFixedPlace) {
      add(end, kFixedPlace - kWindowBytes + kMarginBytes);
      add(kFixedPlace - kMarginBytes, mapping->begin);
    } else {
      add(end, mapping->begin);
    }
    end = mapping->end;
  }
  return found;
}

}  // namespace

FixedPlace::FixedPlace() {
  if (kFixedPlace == 0)
    return;
  const auto maps = read_proc_file("/proc/self/maps");
  if (!maps)
    return;
  for (const auto& [begin, end] : gaps(*maps)) {
    void* const place = system_mmap(
        begin, end - begin, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (place != MAP_FAILED)
      taken_.emplace_back(place, end - begin);
  }
}

FixedPlace::~FixedPlace() {
  for (const auto& [place, bytes] : taken_) ::munmap(place, bytes);
}

bool FixedPlace::is_in_window(std::uint64_t address) {
  return kFixedPlace != 0 && address < kFixedPlace &&
         address >= kFixedPlace - kWindowBytes;
}

// NOLINTNEXTLINE(readability-function-size): as mmap()
void* map_memory(void* address, std::size_t bytes, int protection, int flags, int fd,
                 off_t offset) {
  if (kFixedPlace != 0 && address == nullptr && bytes == kPrecompiledHeapBytes &&
      flags == (MAP_PRIVATE | MAP_ANONYMOUS)) {
    void* const place = system_mmap(kFixedPlace, bytes, protection,
                                    flags | MAP_FIXED_NOREPLACE, fd, offset);
    if (place != MAP_FAILED)
      return place;  // an old kernel may have chosen another one: NVRTC notices that
  }
  return system_mmap(reinterpret_cast<std::uintptr_t>(address), bytes, protection,
                     flags, fd, offset);
}

}  // namespace kiln::compile
