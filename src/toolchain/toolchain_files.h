// Two kinds of JSON files under `<cache root>/toolchains`: `<build id>.json`, a hint
// with what an NVRTC reported about itself, and `recorded.json`, the NVRTC of the last
// `warm`, and those that were recorded before it. If a hint is missing, foreign or
// damaged, a worker asks the NVRTC again. Neither file is trusted for what a compiled
// image contains.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"
#include "toolchain/toolchain.h"
#include "util/own_path.h"

namespace kiln::device {

/// The facts stored for the libnvrtc with that build id; nullopt if there are none, if
/// they are not valid, or if there is no `folder`.
[[nodiscard]] std::optional<NvrtcFacts> read_hint(const OwnFolder& folder,
                                                  std::string_view nvrtc_build_id);

/// Creates `folder` (0700) and replaces the file atomically. Errors: kIo, kUntrusted.
[[nodiscard]] Result<void> write_hint(const OwnFolder& folder,
                                      std::string_view nvrtc_build_id,
                                      const NvrtcFacts& facts);

/// So many at most: what was recorded before them is forgotten.
inline constexpr std::size_t kMostRecorded = 16;

/// The toolchain of the last `warm` or `unpack`, and those recorded before it, the
/// newest first; not installed(), since no paths are stored. Errors: kCorrupt,
/// kUntrusted, kIo.
[[nodiscard]] Result<std::vector<Toolchain>> read_records(const OwnFolder& folder);

/// The text of a record.
[[nodiscard]] std::string record_of(const Toolchain& toolchain);

/// The toolchains of a file of records that is not in `folder`, as text, the newest
/// first; none if it is no such file.
[[nodiscard]] std::vector<Toolchain> parse_records(std::string_view text);

/// From now on `toolchain` is the first; the others stay behind it. Creates `folder`
/// (0700) and replaces the file atomically, unless it is the same. Of two that are
/// recorded at one moment one may be lost on a file system that exchanges no files, as
/// NFS, or if its writer is killed just then.
/// Errors: kIo, kUntrusted.
[[nodiscard]] Result<void> write_recorded(const OwnFolder& folder,
                                          const Toolchain& toolchain);

}  // namespace kiln::device
