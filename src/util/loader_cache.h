// Reads /etc/ld.so.cache, the loader's list of libraries outside LD_LIBRARY_PATH.
// Source: glibc, sysdeps/generic/dl-cache.h, the layout since glibc 2.2. The input may
// be damaged: unreadable entries are left out.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "util/bytes.h"

namespace kiln {

struct LoaderCacheEntry {
  std::string name;  // "libnvrtc.so.13"
  std::string path;
  friend bool operator==(const LoaderCacheEntry&, const LoaderCacheEntry&) = default;
};

/// The entries for this machine's architecture whose name starts with `prefix`, in file
/// order; empty for anything that is no loader cache.
[[nodiscard]] std::vector<LoaderCacheEntry> read_loader_cache(
    ByteView bytes, std::string_view prefix = {});

}  // namespace kiln
