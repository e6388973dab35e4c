// Small text files under the root that save work and prove nothing: toolchain facts,
// the record of the last warm, digest memos. Their readers check what they say.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "cache/file_system.h"
#include "cache/trust.h"
#include "kiln/result.h"

namespace kiln::cache {

inline constexpr std::uint64_t kMaxHintBytes = 16ULL << 20U;

/// Replaces the file, whole or not at all; creates its folder. Errors: kIo.
[[nodiscard]] Result<void> write_hint(FileSystem& file_system,
                                      const std::filesystem::path& path,
                                      std::string_view text);

/// nullopt if there is none, or one that somebody else can write.
/// Errors: kIo; kResourceLimit over 16 MiB.
[[nodiscard]] Result<std::optional<std::string>> read_hint(
    FileSystem& file_system, const TrustPolicy& trust,
    const std::filesystem::path& path);

}  // namespace kiln::cache
