// Named files as bytes: the payload of an object of kind files. cache/FORMAT.md,
// "Files", is the contract.

#pragma once

#include <cstddef>
#include <vector>

#include "kiln/file_cache.h"
#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln {

inline constexpr std::size_t kMaxFileNameBytes = 1024;
inline constexpr std::size_t kMaxNamedFiles = 10'000;

/// In any order; names and bytes are copied. Errors: kInvalidArgument, naming the file:
/// its name is absolute, has an empty component, ".", ".." or a NUL, is too long, or is
/// given twice or as another's folder; kResourceLimit (kMaxNamedFiles).
[[nodiscard]] Result<Bytes> encode_files(std::vector<NamedFile> files);

/// That these could be one list. Errors: as encode_files().
[[nodiscard]] Result<void> check_files(std::vector<NamedFile> files);

/// As views into `encoded`. Errors: kCorrupt, for anything that encode_files() cannot
/// have written.
[[nodiscard]] Result<std::vector<NamedFile>> decode_files(ByteView encoded);

}  // namespace kiln
