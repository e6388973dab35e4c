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

/// "9.5.0": always three numbers.
[[nodiscard]] std::string to_string(CudnnVersion version);

/// Reads "9.5.0", and "9.5" as 9.5.0. Errors: kInvalidArgument.
[[nodiscard]] Result<CudnnVersion> parse_cudnn_version(std::string_view text);

/// The form of cudnnGetVersion(): 8906 is 8.9.6. Since version 9 the factor of the
/// major version is 10000: 90500 is 9.5.0.
[[nodiscard]] long encoded(CudnnVersion version);
[[nodiscard]] CudnnVersion decoded(long value);

}  // namespace kiln::attention
