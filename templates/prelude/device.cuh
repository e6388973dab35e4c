// Where a kernel runs: entry points, a block's memory, types, lanes, atomics and
// approximations.

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

/// What instructions take that are for shared memory alone.
KILN_FUNCTION kiln_u32 kiln_shared_address(const void* at) {
  return static_cast<kiln_u32>(__cvta_generic_to_shared(at));
}

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
