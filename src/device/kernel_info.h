// What the .nv.info sections of a cubin say of its kernels.
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

/// Bytes of each parameter of a kernel, in order; nullopt where nobody tells.
using ParameterSizes = std::optional<std::vector<std::size_t>>;

/// Registers a thread of the kernel with symbol index `symbol`; `info` is .nv.info.
[[nodiscard]] std::optional<std::uint32_t> registers_of(ByteView info,
                                                        std::size_t symbol);

/// `info` is .nv.info.<kernel>. nullopt where it describes parameters in a way that is
/// not known here, or that contradicts itself. Errors: kCorrupt, naming `kernel`, where
/// it is cut off.
[[nodiscard]] Result<ParameterSizes> parameters_of(ByteView info,
                                                   std::string_view kernel);

}  // namespace kiln::device
