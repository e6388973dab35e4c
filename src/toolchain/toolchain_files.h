// Two kinds of JSON files under `<cache root>/toolchains`: `<build id>.json`, a hint of
// what an NVRTC said of itself, and `recorded.json`, the NVRTC of the last `warm`.
// A hint that is missing, foreign or damaged is asked for again; neither is ever
// trusted for what a compiled image contains.

#pragma once

#include <optional>
#include <string_view>

#include "kiln/result.h"
#include "toolchain/toolchain.h"
#include "util/own_path.h"

namespace kiln::device {

/// The facts kept for the libnvrtc of that build id; nullopt where there are none that
/// can be believed, or no `folder`.
[[nodiscard]] std::optional<NvrtcFacts> read_hint(const OwnFolder& folder,
                                                  std::string_view nvrtc_build_id);

/// Creates `folder` (0700) and replaces the file in one step. Errors: kIo,
/// kUntrusted.
[[nodiscard]] Result<void> write_hint(const OwnFolder& folder,
                                      std::string_view nvrtc_build_id,
                                      const NvrtcFacts& facts);

/// The toolchain of the last `warm`, not installed() (its paths are not kept); nullopt
/// where none was recorded. Errors: kCorrupt, kUntrusted, kIo.
[[nodiscard]] Result<std::optional<Toolchain>> read_recorded(const OwnFolder& folder);

/// Creates `folder` (0700) and replaces the file in one step. Errors: kIo,
/// kUntrusted.
[[nodiscard]] Result<void> write_recorded(const OwnFolder& folder,
                                          const Toolchain& toolchain);

}  // namespace kiln::device
