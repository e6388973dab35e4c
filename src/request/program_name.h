// The name under which NVRTC sees a source: in its log, in `__FILE__`, in the line
// numbers that profilers and debuggers read, and in the names of internal symbols.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kiln::request {

/// Of a source whose file name has no last component, as "" or "a/..".
inline constexpr std::string_view kNoName = "kernel.cu";

inline constexpr std::size_t kMaxProgramNameBytes = 255;

/// `file_name` without its folder, which must not reach a key. It is part of the key,
/// so it becomes one line of UTF-8 text: '_' stands for a control character, U+FFFD
/// for bytes that are no UTF-8; of a name that is too long the end stays.
[[nodiscard]] std::string program_name(std::string_view file_name);

}  // namespace kiln::request
