// Options of nvcc, for those who type them at Kiln: the right spelling, or why there is
// none.

#pragma once

#include <string>
#include <string_view>

namespace kiln::request {

/// NVRTC compiles device code, and an option of nvcc is for one of these:
enum class NvccOption {
  kUnknown,    // no option of nvcc that is known here
  kOfNvrtc,    // NVRTC takes it as it is
  kElsewhere,  // Kiln says it another way, or it is for the host's code
};

struct NvccHint {
  NvccOption kind = NvccOption::kUnknown;
  /// "nvcc's -O3: device code is always optimized, so leave the option out", "NVRTC
  /// takes it, as --option=-Xptxas=-O1"; empty of kUnknown.
  std::string advice{};
};

/// Of a word such as "-O3" or "--expt-relaxed-constexpr", and of the word behind it,
/// which may be its value. Which of them NVRTC takes was tried with NVRTC 12.9
/// and 13.0; sources: NVRTC documentation, "Supported Compile Options", and nvcc
/// documentation, "NVCC Command Options".
[[nodiscard]] NvccHint nvcc_hint(std::string_view word, std::string_view next = {});

}  // namespace kiln::request
