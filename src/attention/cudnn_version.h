// Versions of cuDNN as people write them and as the library reports them.

#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "kiln/result.h"

namespace kiln::attention {

struct CudnnVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;
  friend auto operator<=>(const CudnnVersion&, const CudnnVersion&) = default;
};

/// "9.5.0": always all three.
[[nodiscard]] std::string to_string(CudnnVersion version);

/// Reads "9.5.0", and "9.5" as 9.5.0. Errors: kInvalidArgument.
[[nodiscard]] Result<CudnnVersion> parse_cudnn_version(std::string_view text);

/// cudnnGetVersion()'s form, whose factor changed with 9: 8906 is 8.9.6, 90500
/// is 9.5.0.
[[nodiscard]] long encoded(CudnnVersion version);
[[nodiscard]] CudnnVersion decoded(long value);

}  // namespace kiln::attention
