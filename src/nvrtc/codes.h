// The results of NVRTC's functions that Kiln itself gives or reads. Source: nvrtc.h.

#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace kiln::nvrtc {

inline constexpr int kSuccess = 0;
inline constexpr int kOutOfMemory = 1;
inline constexpr int kInvalidInput = 3;
inline constexpr int kCompilation = 6;
inline constexpr int kNoNameExpressionsAfterCompilation = 8;
inline constexpr int kNoLoweredNamesBeforeCompilation = 9;
inline constexpr int kNameExpressionNotValid = 10;
inline constexpr int kInternalError = 11;

/// Of a compile that ended by the source, whichever process ran it; nullopt for any
/// other result.
[[nodiscard]] constexpr std::optional<int> code_of(std::string_view result) {
  if (result == "NVRTC_ERROR_OUT_OF_MEMORY")
    return kOutOfMemory;
  if (result == "NVRTC_ERROR_COMPILATION")
    return kCompilation;
  if (result == "NVRTC_ERROR_INTERNAL_ERROR")
    return kInternalError;
  return std::nullopt;
}

}  // namespace kiln::nvrtc
