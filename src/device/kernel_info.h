// Reads the .nv.info sections of a cubin: its kernels' registers and parameters.
// Source: measured on the output of NVRTC 12.9 and 13.0 for 7.0 to 12.0; the names of
// the attributes are cuobjdump's, EIATTR_*.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln::device {

/// Size in bytes of each kernel parameter, in order; nullopt: unknown.
using ParameterSizes = std::optional<std::vector<std::size_t>>;

/// Registers per thread of the kernel with symbol index `symbol`; `info` is .nv.info.
[[nodiscard]] std::optional<std::uint32_t> registers_of(ByteView info,
                                                        std::size_t symbol);

/// `info` is .nv.info.<kernel>. nullopt if it describes the parameters in an unknown or
/// contradictory way. Errors: kCorrupt, naming `kernel`, if it is truncated.
[[nodiscard]] Result<ParameterSizes> parameters_of(ByteView info,
                                                   std::string_view kernel);

}  // namespace kiln::device
