// Element types: conversions, exact to float, to nearest even from float; NaN stays
// NaN.

KILN_FUNCTION kiln_u32 kiln_float_to_bf16(float value) {
#if __CUDA_ARCH__ >= 800
  kiln_u32 bits;
  asm("{.reg .b16 h; cvt.rn.bf16.f32 h, %1; cvt.u32.u16 %0, h;}"
      : "=r"(bits)
      : "f"(value));
  return bits;
#else
  const kiln_u32 bits = kiln_bits(value);
  return value == value ? (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16 : 0x7fffu;
#endif
}

/// How an element lies in 32-bit words: `get` reads the `at`-th of those in a word,
/// `put` makes a word of the `kPerWord` floats at `values`, `bits` the bits of one.
template <typename T>
struct kiln_element;

template <>
struct kiln_element<kiln_f32> {
  static constexpr int kPerWord = 1;
  static KILN_FUNCTION kiln_u32 bits(float value) { return kiln_bits(value); }
  static KILN_FUNCTION float get(kiln_u32 word, int) { return kiln_from_bits(word); }
  static KILN_FUNCTION kiln_u32 put(const float* values) {
    return kiln_bits(values[0]);
  }
};

template <>
struct kiln_element<kiln_bf16> {
  static constexpr int kPerWord = 2;
  static KILN_FUNCTION kiln_u32 bits(float value) { return kiln_float_to_bf16(value); }
  static KILN_FUNCTION float get(kiln_u32 word, int at) {
    return kiln_from_bits(at == 0 ? word << 16 : word & 0xffff0000u);
  }
  static KILN_FUNCTION kiln_u32 put(const float* values) {
#if __CUDA_ARCH__ >= 800
    kiln_u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(values[0]), "f"(values[1]));
    return word;
#else
    return kiln_float_to_bf16(values[0]) | kiln_float_to_bf16(values[1]) << 16;
#endif
  }
};

template <>
struct kiln_element<kiln_f16> {
  static constexpr int kPerWord = 2;
  static KILN_FUNCTION kiln_u32 bits(float value) { return kiln_float_to_f16(value); }
  static KILN_FUNCTION float get(kiln_u32 word, int at) {
    return kiln_f16_to_float(at == 0 ? word & 0xffffu : word >> 16);
  }
  static KILN_FUNCTION kiln_u32 put(const float* values) {
#if __CUDA_ARCH__ >= 800
    kiln_u32 word;
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(values[0]), "f"(values[1]));
    return word;
#else
    return kiln_float_to_f16(values[0]) | kiln_float_to_f16(values[1]) << 16;
#endif
  }
};

KILN_FUNCTION float kiln_to_float(kiln_f32 x) { return x; }
KILN_FUNCTION float kiln_to_float(kiln_f16 x) { return kiln_f16_to_float(x.bits); }
KILN_FUNCTION float kiln_to_float(kiln_bf16 x) {
  return kiln_from_bits(static_cast<kiln_u32>(x.bits) << 16);
}
KILN_FUNCTION void kiln_store(kiln_f32* at, float x) { *at = x; }
KILN_FUNCTION void kiln_store(kiln_f16* at, float x) {
  at->bits = static_cast<unsigned short>(kiln_float_to_f16(x));
}
KILN_FUNCTION void kiln_store(kiln_bf16* at, float x) {
  at->bits = static_cast<unsigned short>(kiln_float_to_bf16(x));
}
