// Types, conversions and intrinsics for kernels. Kiln puts this in front of every
// template's text; it includes nothing, so NVRTC needs no header of any toolkit. The
// one place with inline assembly. The same text runs on a CPU: see `kiln_cpu` below.
// Every name begins with kiln_ or KILN_.

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KILN_ON_GPU 1
/// `KILN_KERNEL(128, 4) name(...) { ... }`: an entry point for blocks of at most 128
/// threads, 4 of which an SM shall hold: 65536 / (128 * 4) registers a thread.
#define KILN_KERNEL(max_threads, blocks) \
  extern "C" __global__ void __launch_bounds__(max_threads, blocks)
#define KILN_FUNCTION __device__ __forceinline__
/// `KILN_SHARED(float, scratch, 64);`: an array that the block shares; unset at first.
#define KILN_SHARED(type, name, count) __shared__ type name[count]
/// `KILN_DYNAMIC_SHARED(float, rows);`: the launch's shared_bytes, 16-byte aligned, the
/// same memory under every name; unset at first.
#define KILN_DYNAMIC_SHARED(type, name)                                \
  extern __shared__ __align__(16) unsigned char kiln_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(kiln_dynamic_shared)
#define KILN_MAY_ALIAS
#else
#define KILN_ON_GPU 0
#define KILN_KERNEL(max_threads, blocks) void
#define KILN_FUNCTION inline
#define KILN_SHARED(type, name, count)                    \
  static constexpr kiln_cpu::SharedTag name##_tag{#name}; \
  type* const name =                                      \
      static_cast<type*>(kiln_cpu::shared_array(&name##_tag, sizeof(type) * (count)))
#define KILN_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(kiln_cpu::dynamic_shared())
#define KILN_MAY_ALIAS [[gnu::may_alias]]
#endif

using kiln_u8 = unsigned char;
using kiln_u32 = unsigned int;
using kiln_i64 = long long;  // every size and offset: int overflows at 2^31 elements
using kiln_u64 = unsigned long long;

// Element types: storage only, arithmetic is in float.
using kiln_f32 = float;
struct kiln_f16 {
  unsigned short bits;
};
struct kiln_bf16 {
  unsigned short bits;
};

KILN_FUNCTION constexpr kiln_u32 kiln_bits(float value) {
  return __builtin_bit_cast(kiln_u32, value);
}
KILN_FUNCTION constexpr float kiln_from_bits(kiln_u32 bits) {
  return __builtin_bit_cast(float, bits);
}
constexpr float kiln_infinity = __builtin_bit_cast(float, 0x7f800000u);
constexpr kiln_u32 kiln_all_lanes = 0xffffffffu;

// ---- What differs between GPU and CPU

#if KILN_ON_GPU

KILN_FUNCTION int kiln_thread() { return static_cast<int>(threadIdx.x); }
KILN_FUNCTION int kiln_threads() { return static_cast<int>(blockDim.x); }
KILN_FUNCTION kiln_i64 kiln_block() { return blockIdx.x; }
KILN_FUNCTION kiln_i64 kiln_blocks() { return gridDim.x; }
KILN_FUNCTION void kiln_sync_threads() { __syncthreads(); }

// What lanes do together. Every lane of `mask` calls it with that mask; nobody else
// takes part or is read. A value is float, int or kiln_u32.
/// What the lanes wrote to memory is there for each of them.
KILN_FUNCTION void kiln_sync_warp(kiln_u32 mask = kiln_all_lanes) { __syncwarp(mask); }
/// The value of the lane whose number differs in the bits of `lanes`.
template <typename V>
KILN_FUNCTION V kiln_shuffle_xor(V value, int lanes, kiln_u32 mask = kiln_all_lanes) {
  return __shfl_xor_sync(mask, value, lanes);
}
/// The value of the lane `by` lanes below; the own one where there is none.
template <typename V>
KILN_FUNCTION V kiln_shuffle_up(V value, int by, kiln_u32 mask = kiln_all_lanes) {
  return __shfl_up_sync(mask, value, static_cast<unsigned>(by));
}
/// The value of the lane `by` lanes above; the own one where there is none.
template <typename V>
KILN_FUNCTION V kiln_shuffle_down(V value, int by, kiln_u32 mask = kiln_all_lanes) {
  return __shfl_down_sync(mask, value, static_cast<unsigned>(by));
}
/// The value of lane `lane`, 0 to 31.
template <typename V>
KILN_FUNCTION V kiln_shuffle(V value, int lane, kiln_u32 mask = kiln_all_lanes) {
  return __shfl_sync(mask, value, lane);
}
/// A bit for each lane where `is`.
KILN_FUNCTION kiln_u32 kiln_ballot(bool is, kiln_u32 mask = kiln_all_lanes) {
  return __ballot_sync(mask, is);
}
KILN_FUNCTION bool kiln_any(bool is, kiln_u32 mask = kiln_all_lanes) {
  return __any_sync(mask, is) != 0;
}
KILN_FUNCTION bool kiln_all(bool is, kiln_u32 mask = kiln_all_lanes) {
  return __all_sync(mask, is) != 0;
}

// In shared or global memory; the old value is returned. Floats are added in an order
// that changes from run to run: not for a result that shall be the same every time.
template <typename V>
KILN_FUNCTION V kiln_atomic_add(V* at, V value) {
  return atomicAdd(at, value);
}
KILN_FUNCTION int kiln_atomic_max(int* at, int value) { return atomicMax(at, value); }
KILN_FUNCTION kiln_u32 kiln_atomic_max(kiln_u32* at, kiln_u32 value) {
  return atomicMax(at, value);
}
/// Neither is NaN. Floats of one sign are ordered as their bits are.
KILN_FUNCTION float kiln_atomic_max(float* at, float value) {
  const kiln_u32 bits = kiln_bits(value);
  if (bits >> 31 != 0) {
    return kiln_from_bits(atomicMin(reinterpret_cast<kiln_u32*>(at), bits));
  }
  const int old = atomicMax(reinterpret_cast<int*>(at), static_cast<int>(bits));
  return kiln_from_bits(static_cast<kiln_u32>(old));
}

KILN_FUNCTION void kiln_require_aligned(const void*, kiln_u64) {}

/// The compiler takes `word` for a new value: what was computed from it is computed
/// again later, and not kept in registers beside it.
KILN_FUNCTION void kiln_forget(kiln_u32& word) { asm("" : "+r"(word)); }

KILN_FUNCTION float kiln_f16_to_float(kiln_u32 bits) {
  float value;
  asm("{.reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h;}" : "=f"(value) : "r"(bits));
  return value;
}
KILN_FUNCTION kiln_u32 kiln_float_to_f16(float value) {
  kiln_u32 bits;
  asm("{.reg .b16 h; cvt.rn.f16.f32 h, %1; cvt.u32.u16 %0, h;}"
      : "=r"(bits)
      : "f"(value));
  return bits;
}
/// 2^x to about 2 ulp; a result below 2^-126 is 0.
KILN_FUNCTION float kiln_exp2_approx(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}

/// 1 / x, the nearest float but for rare ties, for x from 2^-125 to 2^125; NaN stays
/// NaN. The division operator's slow path is a call, and registers would be spilled
/// around it.
KILN_FUNCTION float kiln_reciprocal(float x) {
  float guess;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(guess) : "f"(x));
  return fmaf(fmaf(-x, guess, 1.0f), guess, guess);
}

/// 1 / sqrt(x) to 2 ulp.
KILN_FUNCTION float kiln_rsqrt_approx(float x) {
  float value;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}

#else

// What the including file must offer before this text, in namespace kiln_cpu:
//   int thread(), threads();  long long block(), blocks();       where this thread is
//   void sync_threads(const char* file, int line);               the block's barrier
//   enum class Collective { kSync, kShuffle, kShuffleXor, kShuffleUp, kShuffleDown,
//                           kBallot, kAny, kAll };
//   unsigned collective(Collective, unsigned mask, unsigned value, int argument);
//   V shuffle<V>(Collective, unsigned mask, V value, int argument);
//   V atomic_add<V>(V*, V), atomic_max<V>(V*, V);                the old value
//   struct SharedTag { const char* name; };
//   void* shared_array(const SharedTag*, std::size_t bytes);     one a block and tag
//   void* dynamic_shared();
//   void require_aligned(const void* at, std::size_t bytes);     or report it
//   float f16_to_float(unsigned bits); unsigned float_to_f16(float);  to nearest even
//   float exp2_approx(float);
// and <cstddef> and <math.h>.
inline int kiln_thread() { return kiln_cpu::thread(); }
inline int kiln_threads() { return kiln_cpu::threads(); }
inline kiln_i64 kiln_block() { return kiln_cpu::block(); }
inline kiln_i64 kiln_blocks() { return kiln_cpu::blocks(); }
inline void kiln_sync_threads(const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  kiln_cpu::sync_threads(file, line);
}

using kiln_collective = kiln_cpu::Collective;
inline void kiln_sync_warp(kiln_u32 mask = kiln_all_lanes) {
  kiln_cpu::collective(kiln_collective::kSync, mask, 0, 0);
}
template <typename V>
V kiln_shuffle_xor(V value, int lanes, kiln_u32 mask = kiln_all_lanes) {
  return kiln_cpu::shuffle(kiln_collective::kShuffleXor, mask, value, lanes);
}
template <typename V>
V kiln_shuffle_up(V value, int by, kiln_u32 mask = kiln_all_lanes) {
  return kiln_cpu::shuffle(kiln_collective::kShuffleUp, mask, value, by);
}
template <typename V>
V kiln_shuffle_down(V value, int by, kiln_u32 mask = kiln_all_lanes) {
  return kiln_cpu::shuffle(kiln_collective::kShuffleDown, mask, value, by);
}
template <typename V>
V kiln_shuffle(V value, int lane, kiln_u32 mask = kiln_all_lanes) {
  return kiln_cpu::shuffle(kiln_collective::kShuffle, mask, value, lane);
}
inline kiln_u32 kiln_ballot(bool is, kiln_u32 mask = kiln_all_lanes) {
  return kiln_cpu::collective(kiln_collective::kBallot, mask, is ? 1 : 0, 0);
}
inline bool kiln_any(bool is, kiln_u32 mask = kiln_all_lanes) {
  return kiln_cpu::collective(kiln_collective::kAny, mask, is ? 1 : 0, 0) != 0;
}
inline bool kiln_all(bool is, kiln_u32 mask = kiln_all_lanes) {
  return kiln_cpu::collective(kiln_collective::kAll, mask, is ? 1 : 0, 0) != 0;
}
template <typename V>
V kiln_atomic_add(V* at, V value) {
  return kiln_cpu::atomic_add(at, value);
}
template <typename V>
V kiln_atomic_max(V* at, V value) {
  return kiln_cpu::atomic_max(at, value);
}
inline void kiln_require_aligned(const void* at, kiln_u64 bytes) {
  kiln_cpu::require_aligned(at, bytes);
}

inline void kiln_forget(kiln_u32&) {}
inline float kiln_f16_to_float(kiln_u32 bits) { return kiln_cpu::f16_to_float(bits); }
inline kiln_u32 kiln_float_to_f16(float value) { return kiln_cpu::float_to_f16(value); }
inline float kiln_exp2_approx(float x) { return kiln_cpu::exp2_approx(x); }
inline float kiln_reciprocal(float x) { return 1.0f / x; }
inline float kiln_rsqrt_approx(float x) {
  return static_cast<float>(1.0 / sqrt(static_cast<double>(x)));
}

#endif

/// a / b for a >= 0 and b > 0. Fast below 2^32; above, a loop instead of a call.
KILN_FUNCTION kiln_i64 kiln_divide(kiln_i64 a, kiln_i64 b) {
  if (((a | b) >> 32) == 0) {
    return static_cast<kiln_u32>(a) / static_cast<kiln_u32>(b);
  }
  kiln_u64 quotient = 0;
  kiln_u64 rest = 0;
#pragma unroll 1
  for (int bit = 63; bit >= 0; --bit) {
    rest = rest << 1 | (static_cast<kiln_u64>(a) >> bit & 1);
    quotient <<= 1;
    if (rest >= static_cast<kiln_u64>(b)) {
      rest -= static_cast<kiln_u64>(b);
      quotient |= 1;
    }
  }
  return static_cast<kiln_i64>(quotient);
}

/// e^(x + rest) to 0.8 ulp, for x up to 87 and a small rest; 0 for x below -87. NaN
/// stays NaN. The same bits on every GPU and CPU.
KILN_FUNCTION float kiln_exp(float x, float rest) {
  // x + rest = n ln 2 + r + low with |r| <= ln 2 / 2; n is in the last bits of
  // `shifted`.
  const float shifted = fmaf(x, 1.4426950408889634f, 12582912.0f);
  const float n = shifted - 12582912.0f;
  const float rough = fmaf(n, -0.693145751953125f, x);  // exact: 15 bits of ln 2
  const float more = fmaf(n, -1.42860682e-6f, rest);
  const float r = rough + more;
  const float low = (rough - r) + more;
  // e^r = 1 + r + r^2 q(r), interpolated; off by 2^-26.5 at most.
  float q = fmaf(0.0013926250394433737f, r, 0.00836323294788599f);
  q = fmaf(q, r, 0.04166655242443085f);
  q = fmaf(q, r, 0.16666576266288757f);
  q = fmaf(q, r, 0.5f);
  const float sum = 1.0f + r;
  const float lost = (1.0f - sum) + r;
  const float mantissa = sum + (lost + fmaf(r * r, q, low));
  const float power = kiln_from_bits((kiln_bits(shifted) << 23) + 0x3f800000u);
  return x < -87.0f ? 0.0f : mantissa * power;
}

/// Sine and cosine of n quarter turns and r + low, |r| up to 0.826 and a small low.
KILN_FUNCTION void kiln_sincos_of(kiln_u32 n, float r, float low, float* sine,
                                  float* cosine) {
  const float z = r * r;
  // sin r = r + r^3 p(z) and cos r = 1 - z/2 + z^2 q(z), interpolated; off by 2^-28.
  float p = fmaf(2.7216665e-06f, z, -0.00019839816f);
  p = fmaf(p, z, 0.008333331f);
  p = fmaf(p, z, -0.16666667f);
  const float s = r + fmaf(r * z, p, fmaf(low, -0.5f * z, low));
  float q = fmaf(2.4520492e-05f, z, -0.0013888169f);
  q = fmaf(q, z, 0.041666664f);
  const float half = 0.5f * z;
  const float sum = 1.0f - half;
  const float c = sum + (((1.0f - sum) - half) + fmaf(z * z, q, -(r * low)));
  const float a = n % 2 == 0 ? s : c;
  const float b = n % 2 == 0 ? c : s;
  *sine = n & 2 ? -a : a;
  *cosine = (n + 1) & 2 ? -b : b;
}

/// The same of a large finite x, which is m * 2^e: of 2/pi the 96 bits are taken whose
/// products with m matter modulo four quarter turns (Payne and Hanek, 1983).
KILN_FUNCTION void kiln_sincos_of_large(float x, float* sine, float* cosine) {
  const kiln_u32 bits = kiln_bits(x);
  const kiln_u64 m = (bits & 0x7fffffu) | 0x800000u;
  const kiln_u32 skipped = (bits >> 23 & 0xffu) - 150 + 30;  // 32 zeros stand in front
  kiln_u32 word[4] = {0, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u};
  const kiln_u32 more[4] = {0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu};
#pragma unroll
  for (kiln_u32 i = 0; i < 4; ++i) {
    if (i < skipped / 32) {
      word[0] = word[1];
      word[1] = word[2];
      word[2] = word[3];
      word[3] = more[i];
    }
  }
  const auto window = [&](int i) {
    const kiln_u64 both = static_cast<kiln_u64>(word[i]) << 32 | word[i + 1];
    return both << skipped % 32 >> 32;
  };
  const kiln_u64 last = m * window(2);
  const kiln_u64 middle = m * window(1) + (last >> 32);
  const kiln_u64 turns = (m * window(0) << 32) + middle;  // in 2^-62 quarter turns
  const kiln_u64 quarters = (turns + (1ull << 61)) >> 62;
  const kiln_i64 rest = static_cast<kiln_i64>(turns - (quarters << 62));
  const float high = static_cast<float>(rest);
  const float low = static_cast<float>(rest - static_cast<kiln_i64>(high));
  // Times pi/2, in two floats.
  const float r = high * 3.4061217e-19f;
  const float lost = fmaf(high, 3.4061217e-19f, -r);
  kiln_sincos_of(static_cast<kiln_u32>(quarters), r,
                 fmaf(low, 3.4061217e-19f, fmaf(high, -9.4783964e-27f, lost)), sine,
                 cosine);
  *sine = bits >> 31 != 0 ? -*sine : *sine;
}

/// Sines and cosines of kCount angles in radians, to 0.83 ulp for every float; NaN for
/// infinities. The same bits on every GPU and CPU. It takes several at once because
/// what the rare large ones need is code enough to be there once.
template <int kCount>
KILN_FUNCTION void kiln_sincos(const float* x, float* sine, float* cosine) {
  constexpr float kLarge = 1.0e6f;  // n is off by 0.526 there at most
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float shifted = fmaf(x[i], 0.63661975f, 12582912.0f);  // 1.5 * 2^23
    const float n = shifted - 12582912.0f;
    // x - n pi/2 with pi/2 in three floats. The first difference is exact; of the
    // second, what rounding takes goes along. fmaf keeps a product by itself.
    const float first = fmaf(n, -1.5707964f, x[i]);
    const float by = fmaf(n, 4.371139e-08f, 0.0f);
    const float by_low = fmaf(n, 4.371139e-08f, -by);
    const float r = first + by;
    const float back = r - first;
    const float lost = (first - (r - back)) + (by - back);
    kiln_sincos_of(kiln_bits(shifted), r, fmaf(n, 1.7151245e-15f, lost + by_low),
                   &sine[i], &cosine[i]);
    largest = fmaxf(largest, fabsf(x[i]));
  }
  if (largest > kLarge) {
#pragma unroll 1
    for (int large = 0; large < kCount; ++large) {
      float angle = 0.0f;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        angle = i == large ? x[i] : angle;
      }
      const float size = fabsf(angle);
      if (size > kLarge && size < kiln_infinity) {
        float s = 0.0f;
        float c = 0.0f;
        kiln_sincos_of_large(angle, &s, &c);
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          sine[i] = i == large ? s : sine[i];
          cosine[i] = i == large ? c : cosine[i];
        }
      }
    }
  }
}

/// 1 / sqrt(x), the nearest float but for rare ties, for x from 2^-126; NaN for 0,
/// infinity and NaN.
KILN_FUNCTION float kiln_rsqrt(float x) {
  const float guess = kiln_rsqrt_approx(x);
  const float root = x * guess;
  const float lost = fmaf(x, guess, -root);
  const float error = fmaf(-lost, guess, fmaf(-root, guess, 1.0f));
  return fmaf(0.5f * guess, error, guess);
}

// ---- Conversions: exact to float, to nearest even from float, NaN stays NaN

KILN_FUNCTION kiln_u32 kiln_float_to_bf16(float value) {
#if KILN_ON_GPU && __CUDA_ARCH__ >= 800
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
#if KILN_ON_GPU && __CUDA_ARCH__ >= 800
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
#if KILN_ON_GPU && __CUDA_ARCH__ >= 800
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

// ---- Packs: what one instruction loads or stores

/// 4, 8 or 16 bytes, moved by one instruction at an address that is a multiple of them.
template <int kBytes>
struct alignas(kBytes) KILN_MAY_ALIAS kiln_words {
  kiln_u32 word[kBytes / 4];
};

template <int kBytes>
KILN_FUNCTION kiln_words<kBytes> kiln_load(const void* at) {
  kiln_require_aligned(at, kBytes);
  return *static_cast<const kiln_words<kBytes>*>(at);
}
template <int kBytes>
KILN_FUNCTION void kiln_store(void* at, const kiln_words<kBytes>& words) {
  kiln_require_aligned(at, kBytes);
  *static_cast<kiln_words<kBytes>*>(at) = words;
}
/// The same, of 16 bytes, for what nobody reads soon: it is the first to leave the
/// caches again.
template <int kBytes>
KILN_FUNCTION void kiln_store_streaming(void* at, const kiln_words<kBytes>& words) {
  static_assert(kBytes == 16);
#if KILN_ON_GPU
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(at), "r"(words.word[0]), "r"(words.word[1]), "r"(words.word[2]),
                 "r"(words.word[3])
               : "memory");
#else
  kiln_store<kBytes>(at, words);
#endif
}
KILN_FUNCTION bool kiln_is_aligned(const void* at, kiln_u64 bytes) {
  return reinterpret_cast<kiln_u64>(at) % bytes == 0;
}

/// The `at`-th element of type T in `words`.
template <typename T, int kBytes>
KILN_FUNCTION float kiln_get(const kiln_words<kBytes>& words, int at) {
  constexpr int kPerWord = kiln_element<T>::kPerWord;
  return kiln_element<T>::get(words.word[at / kPerWord], at % kPerWord);
}
/// Makes `bits` the `at`-th element of type T.
template <typename T, int kBytes>
KILN_FUNCTION void kiln_set_bits(kiln_words<kBytes>& words, int at, kiln_u32 bits) {
  constexpr int kPerWord = kiln_element<T>::kPerWord;
  kiln_u32& word = words.word[at / kPerWord];
  if constexpr (kPerWord == 1) {
    word = bits;
  } else {
    word = at % 2 == 0 ? (word & 0xffff0000u) | bits : (word & 0xffffu) | bits << 16;
  }
}
/// The `at`-th byte.
template <int kBytes>
KILN_FUNCTION kiln_u32 kiln_byte(const kiln_words<kBytes>& words, int at) {
  return words.word[at / 4] >> 8 * (at % 4) & 0xffu;
}

/// `values` rounded to T.
template <typename T, int kBytes>
KILN_FUNCTION kiln_words<kBytes> kiln_pack(const float* values) {
  kiln_words<kBytes> words;
#pragma unroll
  for (int i = 0; i < kBytes / 4; ++i) {
    words.word[i] = kiln_element<T>::put(values + i * kiln_element<T>::kPerWord);
  }
  return words;
}

/// kCount elements of type E, a multiple of 16 bytes, in registers.
template <typename E, int kCount>
struct kiln_vector {
  static constexpr int kPerWords = 16 / sizeof(E);
  kiln_words<16> words[kCount / kPerWords];

  KILN_FUNCTION float get(int at) const {
    return kiln_get<E>(words[at / kPerWords], at % kPerWords);
  }
  /// `values` rounded to E.
  KILN_FUNCTION void set(const float* values) {
#pragma unroll
    for (int i = 0; i < kCount / kPerWords; ++i) {
      words[i] = kiln_pack<E, 16>(values + i * kPerWords);
    }
  }

  /// It stays as it is in registers, and not as the floats that were made of it.
  KILN_FUNCTION void keep_packed() {
#pragma unroll
    for (int i = 0; i < kCount / kPerWords; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        kiln_forget(words[i].word[k]);
      }
    }
  }

  /// Those at `at`, 16-byte aligned; zeros where they are not there.
  KILN_FUNCTION void load(const E* at, bool are_there) {
#pragma unroll
    for (int i = 0; i < kCount / kPerWords; ++i) {
      words[i] = {};
      if (are_there) {
        words[i] = kiln_load<16>(at + i * kPerWords);
      }
    }
  }
  KILN_FUNCTION void store(E* at) const {
#pragma unroll
    for (int i = 0; i < kCount / kPerWords; ++i) {
      kiln_store(at + i * kPerWords, words[i]);
    }
  }
};

// ---- Reductions: every lane gets the same bits, in an order that never changes

struct kiln_max {
  static constexpr float kNeutral = -kiln_infinity;
  static KILN_FUNCTION float of(float a, float b) { return fmaxf(a, b); }  // drops NaN
};
struct kiln_sum {
  static constexpr float kNeutral = 0.0f;
  static KILN_FUNCTION float of(float a, float b) { return a + b; }
};

/// Over each `kLanes` (a power of two up to 32) neighbouring lanes. The whole warp
/// calls it.
template <typename Op, int kLanes>
KILN_FUNCTION float kiln_reduce_lanes(float value) {
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    value = Op::of(value, kiln_shuffle_xor(value, lanes));
  }
  return value;
}

/// kLanes lanes that work together: a warp or a part of it.
template <int kLanes>
struct kiln_lanes {
  KILN_FUNCTION int size() const { return kLanes; }
  KILN_FUNCTION int rank() const { return kiln_thread() % kLanes; }
  KILN_FUNCTION int number() const { return kiln_thread() / kLanes; }  // in the block
  template <typename Op>
  KILN_FUNCTION float reduce(float value) {
    return kiln_reduce_lanes<Op, kLanes>(value);
  }
  /// Each of the values.
  template <typename Op, int kCount>
  KILN_FUNCTION void reduce_each(float (&values)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = reduce<Op>(values[i]);
    }
  }
};

/// The threads of a block that work together: a multiple of 32, all of them call
/// reduce(). `scratch` is shared, kScratch floats. Two halves taken in turn make one
/// barrier enough: who writes a half again has passed the barrier that follows
/// everybody's reading of it.
struct kiln_block_threads {
  static constexpr int kScratch = 64;
  float* scratch;
  int half = 0;
  KILN_FUNCTION int size() const { return kiln_threads(); }
  KILN_FUNCTION int rank() const { return kiln_thread(); }
  KILN_FUNCTION int number() const { return 0; }
  template <typename Op>
  KILN_FUNCTION float reduce(float value) {
    value = kiln_reduce_lanes<Op, 32>(value);
    if (size() == 32) {
      return value;
    }
    const int lane = rank() % 32;
    if (lane == 0) {
      scratch[half + rank() / 32] = value;
    }
    kiln_sync_threads();
    value = lane < size() / 32 ? scratch[half + lane] : Op::kNeutral;
    half = 32 - half;
    return kiln_reduce_lanes<Op, 32>(value);
  }
  /// Each of the values, with one barrier for all; scratch is kCount * kScratch floats.
  template <typename Op, int kCount>
  KILN_FUNCTION void reduce_each(float (&values)[kCount]) {
    const int lane = rank() % 32;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = kiln_reduce_lanes<Op, 32>(values[i]);
      if (lane == 0 && size() > 32) {
        scratch[i * kScratch + half + rank() / 32] = values[i];
      }
    }
    if (size() == 32) {
      return;
    }
    kiln_sync_threads();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const bool is_there = lane < size() / 32;
      values[i] = is_there ? scratch[i * kScratch + half + lane] : Op::kNeutral;
      values[i] = kiln_reduce_lanes<Op, 32>(values[i]);
    }
    half = 32 - half;
  }
};

/// out[col] = the sum of `parts` rows of cols floats, rounded once; 0 where there are
/// none. Every thread of a block of kThreads calls it; `scratch` is shared, as many
/// floats. kColumns columns a block and turn; the threads of each share its rows.
template <int kThreads, int kColumns, typename T>
KILN_FUNCTION void kiln_sum_columns(T* out, const float* rows, kiln_i64 parts,
                                    kiln_i64 cols, float* scratch) {
  constexpr int kGroups = kThreads / kColumns;
  const int lane = kiln_thread() % kColumns;
  const int group = kiln_thread() / kColumns;
  const kiln_i64 stride = kiln_blocks() * kColumns;
#pragma unroll 1
  for (kiln_i64 base = kiln_block() * kColumns; base < cols; base += stride) {
    const kiln_i64 col = base + lane;
    float sum = 0.0f;
    if (col < cols) {
#pragma unroll 8
      for (kiln_i64 part = group; part < parts; part += kGroups) {
        sum += rows[part * cols + col];
      }
    }
    scratch[kiln_thread()] = sum;
    kiln_sync_threads();
    if (group == 0 && col < cols) {
#pragma unroll
      for (int i = 1; i < kGroups; ++i) {
        sum += scratch[i * kColumns + lane];
      }
      kiln_store(out + col, sum);
    }
    kiln_sync_threads();
  }
}

// ---- Activations: value and slope at u, as accurate as results of type T can show

// Of a float, values are good to 3 ulp (kiln_gelu_erf: 4), however small, and slopes to
// that of the larger of the terms they are the sum of; the same bits on every GPU and
// CPU. What rounds to 16 bits is off by 2^-15 at most. Where a sigmoid or a normal
// distribution is below 2^-125 it is 0, and so is what is multiplied by it: no
// inf * 0. NaN stays NaN in a value.

struct kiln_activation {
  float value;
  float slope;
};

/// e^(x + rest) for x <= 0.
template <typename T>
KILN_FUNCTION float kiln_exp_for(float x, float rest) {
  if constexpr (sizeof(T) == 2) {
    return kiln_exp2_approx(x * 1.4426950408889634f);
  } else {
    return kiln_exp(x, rest);
  }
}

/// u * sigmoid(x + rest), where `growth` is u * dx/du.
template <typename T>
KILN_FUNCTION kiln_activation kiln_times_sigmoid(float u, float x, float rest,
                                                 float growth) {
  const float e = kiln_exp_for<T>(-fabsf(x), x < 0.0f ? rest : -rest);
  const float sum = 1.0f + e;
  float large = kiln_reciprocal(sum);
  if constexpr (sizeof(T) == 4) {
    const float lost = e - (sum - 1.0f);
    large = fmaf(-large * lost, large, large);
  }
  const float small = e * large;
  const float at = x < 0.0f ? small : large;
  const float other = x < 0.0f ? large : small;  // 1 - at
  // Where it is cut off, `at` or `other` is 0.
  const float bounded = fminf(fmaxf(growth, -300.0f), 300.0f);
  return {at == 0.0f ? 0.0f : u * at, at * fmaf(other, bounded, 1.0f)};
}

/// u * sigmoid(alpha * u)
template <typename T>
KILN_FUNCTION kiln_activation kiln_silu(float u, float alpha = 1.0f) {
  const float x = alpha * u;
  return kiln_times_sigmoid<T>(u, x, fmaf(alpha, u, -x), x);
}

/// 0.5 u (1 + tanh(sqrt(2/pi) (u + 0.044715 u^3))) = u sigmoid(u (c + d u^2))
template <typename T>
KILN_FUNCTION kiln_activation kiln_gelu_tanh(float u) {
  constexpr float c = 1.5957691669464111f;  // 2 sqrt(2/pi), and what is lost of it
  constexpr float c_lost = -4.534068054340423e-8f;
  constexpr float d = 0.07135481387376785f;  // 0.044715 c
  constexpr float d_lost = 2.3988324659995897e-9f;
  const float square = u * u;
  const float growth = u * fmaf(3.0f * d, square, c);
  if constexpr (sizeof(T) == 2) {
    return kiln_times_sigmoid<T>(u, u * fmaf(d, square, c), 0.0f, growth);
  } else {
    // The tail's relative error is the exponent's absolute one: that goes along.
    const float cubic = d * square;
    const float cubic_lost =
        fmaf(d, square, -cubic) + fmaf(d, fmaf(u, u, -square), d_lost * square);
    const float sum = c + cubic;
    const float back = sum - c;
    const float sum_lost = (c - (sum - back)) + (cubic - back);
    const float x = u * sum;
    const float lost = sum_lost + (cubic_lost + c_lost);
    return kiln_times_sigmoid<T>(u, x, fmaf(u, lost, fmaf(u, sum, -x)), growth);
  }
}

/// u Phi(u) = 0.5 u (1 + erf(u / sqrt(2)))
template <typename T>
KILN_FUNCTION kiln_activation kiln_gelu_erf(float u) {
  const float half = -0.5f * u;
  const float x = half * u;
  const float e = kiln_exp_for<T>(x, fmaf(half, u, -x));
  // Phi(-w) = e^(-w^2/2) p(w) where p is a polynomial in t = 1 / (1 + kw), interpolated
  // up to w = 13.5; off by 2^-18.9 at most for 16 bits, by 2^-25.9 for a float.
  const float w = fminf(fabsf(u), 14.0f);
  float p;
  if constexpr (sizeof(T) == 2) {
    const float t = kiln_reciprocal(fmaf(0.2f, w, 1.0f));
    p = fmaf(0.2815561592578888f, t, -0.396323561668396f);
    p = fmaf(p, t, 0.4617170989513397f);
    p = fmaf(p, t, -0.135015606880188f);
    p = fmaf(p, t, 0.13765732944011688f);
    p = fmaf(p, t, 0.06995922327041626f);
    p = fmaf(p, t, 0.08045011013746262f) * t;
  } else {
    // In z = 1 - t, taken so that it is exact where it is small.
    const float t = kiln_reciprocal(fmaf(0.5f, w, 1.0f));
    const float z = 0.5f * w * t;
    p = fmaf(-0.04479256644845009f, z, 0.18831655383110046f);
    p = fmaf(p, z, -0.2966180443763733f);
    p = fmaf(p, z, 0.24063417315483093f);
    p = fmaf(p, z, -0.14108896255493164f);
    p = fmaf(p, z, 0.03727060183882713f);
    p = fmaf(p, z, 0.01297698263078928f);
    p = fmaf(p, z, 0.053982123732566833f);
    p = fmaf(p, z, 0.042448751628398895f);
    p = fmaf(p, z, -0.09576798975467682f);
    p = fmaf(p, z, -0.2978845536708832f);
    p = fmaf(p, z, 0.5f) * t;
  }
  const float phi = u < 0.0f ? e * p : fmaf(-e, p, 1.0f);
  const float bounded = fminf(fmaxf(u, -14.0f), 14.0f);
  return {phi == 0.0f ? 0.0f : u * phi,
          fmaf(bounded * 0.3989422804014327f, e, phi)};
}

template <typename T>
KILN_FUNCTION kiln_activation kiln_relu(float u) {
  return {u < 0.0f ? 0.0f : u, u <= 0.0f ? 0.0f : 1.0f};
}

/// relu(u)^2
template <typename T>
KILN_FUNCTION kiln_activation kiln_squared_relu(float u) {
  const float positive = u < 0.0f ? 0.0f : u;
  return {positive * positive, 2.0f * positive};
}
