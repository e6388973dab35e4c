// A precompiled header on disk, as a worker meets it. NVRTC maps the file and trusts
// it: a damaged one crashes it, or changes what it compiles. So each is read and
// checked before it is used.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "compile/protocol/job.h"
#include "kiln/result.h"

namespace kiln::compile {

/// What must be true of the file when it is used: its size and its XXH3-128, read in
/// whole (27 ms for CUB's 178 MB). Errors: kIo, kCorrupt for an empty one.
[[nodiscard]] Result<PrecompiledFile> describe_precompiled(
    const std::filesystem::path& path, std::uint64_t nvrtc_address);

/// kUsed if the file is what was made, and libnvrtc where it was then; else why not.
/// The file that this process checked last is read again only if it was written since,
/// or shortly before; see is_settled().
/// Thread safety: one thread.
[[nodiscard]] PrecompiledUse check_precompiled(const PrecompiledFile& file,
                                               std::uint64_t nvrtc_address);

/// Removes NVRTC's line about `path` ("creating" or "using precompiled header file")
/// from the log. False if there is none: then NVRTC did not do it.
[[nodiscard]] bool take_message(std::string& log, std::string_view doing,
                                const std::filesystem::path& path);

}  // namespace kiln::compile
