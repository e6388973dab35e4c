#include "util/loader_cache.h"

#include <cstdint>

#include "util/elf_headers.h"
#include "util/little_endian.h"

namespace kiln {
namespace {

constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kHeaderSize = 48;
constexpr std::size_t kEntrySize = 24;

// FLAG_ELF_LIBC6 and the architecture's own flag.
#if defined(__x86_64__)
constexpr std::uint32_t kFlags = 0x0303;
#elif defined(__aarch64__)
constexpr std::uint32_t kFlags = 0x0a03;
#else
constexpr std::uint32_t kFlags = 0x0003;
#endif

}  // namespace

std::vector<LoaderCacheEntry> read_loader_cache(ByteView bytes,
                                                std::string_view prefix) {
  // Older systems put this list behind one in an older layout.
  const std::size_t start = as_text(bytes).find(kMagic);
  if (start == std::string_view::npos || bytes.size() - start < kHeaderSize)
    return {};
  const ByteView cache = bytes.subspan(start);
  const auto count = load_le<std::uint32_t>(cache, kMagic.size());
  std::vector<LoaderCacheEntry> entries;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = kHeaderSize + i * kEntrySize;
    if (at + kEntrySize > cache.size())
      break;
    if (load_le<std::uint32_t>(cache, at) != kFlags)
      continue;
    // Offsets count from the start of the header.
    const auto name =
        elf_string(cache, load_le<std::uint32_t>(cache, at + 4)).value_or("");
    const auto path =
        elf_string(cache, load_le<std::uint32_t>(cache, at + 8)).value_or("");
    if (!name.empty() && name.starts_with(prefix) && path.starts_with('/'))
      entries.push_back({std::string(name), std::string(path)});
  }
  return entries;
}

}  // namespace kiln
