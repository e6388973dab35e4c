// What the device converts by an instruction, bit for bit.

#pragma once

namespace kiln_cpu {

[[nodiscard]] float f16_to_float(unsigned bits);
[[nodiscard]] unsigned float_to_f16(float value);

}  // namespace kiln_cpu
