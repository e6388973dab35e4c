// The integer forms of opcodes that have forms for floats, too.

#pragma once

#include "tests/support/ptx/decoder.h"

namespace kiln::ptx {

/// Of a product: "lo", "hi" or "wide".
enum class Part : std::uint8_t { kLow, kHigh, kWide };

/// add, sub, div, min, max, abs, neg; made.saturates and made.is_other (relu) are set.
void select_integer(Decoder& decoder, Type type);

/// mul, mad.
void select_product(Decoder& decoder, Type type, Part part);

/// add, sub and mad with ".cc", which is taken here.
void select_integer_with_carry(Decoder& decoder);

}  // namespace kiln::ptx
