// Two kinds of JSON files under `<cache root>/toolchains`: `<build id>.json`, a hint
// with what an NVRTC reported about itself, and `recorded.json`, the NVRTC of the last
// `warm`. If a hint is missing, foreign or damaged, a worker asks the NVRTC again.
// Neither file is trusted for what a compiled image contains.

#pragma once

#include <optional>
#include <string>
#include <string_view>

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

/// The toolchain of the last `warm`, not installed(), since no paths are stored;
/// nullopt if none was recorded. Errors: kCorrupt, kUntrusted, kIo.
[[nodiscard]] Result<std::optional<Toolchain>> read_recorded(const OwnFolder& folder);

/// The text of a record.
[[nodiscard]] std::string record_of(const Toolchain& toolchain);

/// The toolchain of a record that is not in `folder`, as text; nullopt if it is none.
[[nodiscard]] std::optional<Toolchain> parse_recorded(std::string_view record);

/// Creates `folder` (0700) and replaces the file atomically, unless it is the same.
/// Errors: kIo, kUntrusted.
[[nodiscard]] Result<void> write_recorded(const OwnFolder& folder,
                                          const Toolchain& toolchain);

}  // namespace kiln::device
