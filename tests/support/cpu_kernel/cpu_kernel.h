// What templates/prelude.cuh needs to run kernels on a CPU: where the calling thread of
// the kernel is, and what threads of a block or a warp do together. Works inside
// kiln_cpu::launch() only (executor.h); what a kernel does wrong ends the launch there.
// A rendered kernel is compiled after this header.

#pragma once

#include <math.h>  // NOLINT(modernize-deprecated-headers): kernels call ::expf

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kiln_cpu {

[[nodiscard]] int thread();
[[nodiscard]] int threads();
[[nodiscard]] long long block();
[[nodiscard]] long long blocks();

/// Returns when every thread of the block is here or has ended. Here is a line of a
/// source file: threads that wait at different ones end the launch.
void sync_threads(const char* file, int line);

// ---- What the lanes of a warp do together

inline constexpr int kWarpLanes = 32;

enum class Collective : std::uint8_t {
  kSync,
  kShuffle,      // the value of lane `argument`
  kShuffleXor,   // the value of lane `self ^ argument`
  kShuffleUp,    // the value of lane `self - argument`, its own where there is none
  kShuffleDown,  // the value of lane `self + argument`, its own where there is none
  kBallot,       // a bit for each lane whose value is not 0
  kAny,
  kAll,
  kMatchAny,  // a bit for each lane with the same value
  kReduceAdd,
  kReduceMin,
  kReduceMax,
  kReduceAnd,
  kReduceOr,
  kReduceXor,
  kMatrixLoad,  // from here on the whole warp: see matrix_load() and multiply()
  kMatrixLoadTransposed,
  kMultiplyK8F16,
  kMultiplyK8Bf16,
  kMultiplyK16F16,
  kMultiplyK16Bf16,
};

/// Returns when all lanes in `mask` are here; only they take part. Each must be in its
/// own mask and give the same mask and collective, and must not read a lane outside it.
unsigned collective(Collective what, unsigned mask, unsigned value, int argument);

/// One of the shuffles for any type of 4 bytes.
template <typename V>
[[nodiscard]] V shuffle(Collective how, unsigned mask, V value, int argument) {
  static_assert(sizeof(V) == sizeof(unsigned));
  return std::bit_cast<V>(
      collective(how, mask, std::bit_cast<unsigned>(value), argument));
}

/// One of the reductions; signed numbers are ordered as such.
template <typename V>
[[nodiscard]] V reduce(Collective how, unsigned mask, V value) {
  static_assert(std::is_same_v<V, int> || std::is_same_v<V, unsigned>);
  const bool ordered = how == Collective::kReduceMin || how == Collective::kReduceMax;
  const unsigned flip = std::is_signed_v<V> && ordered ? 0x80000000U : 0U;
  return static_cast<V>(collective(how, mask, static_cast<unsigned>(value) ^ flip, 0) ^
                        flip);
}

/// One of the matrix loads: `row` is 16 bytes of the block's shared memory, aligned,
/// read when the lane comes. Anything else is reported.
void matrix_load(Collective how, unsigned (&words)[4], const void* row);

/// One of the products: `a` is 4 words and `b` 2, for k8 2 and 1.
void multiply(Collective how, float (&d)[4], const unsigned* a, const unsigned* b);

// ---- Memory

/// A shared array's identity and its name in reports.
struct SharedTag {
  const char* name;
};

/// The block's array for `tag`: the same one for all its threads, poisoned when the
/// block begins, behind guards (guarded_memory.h).
[[nodiscard]] void* shared_array(const SharedTag* tag, std::size_t bytes);

/// The shared memory that the launch was asked for, 16-byte aligned.
[[nodiscard]] void* dynamic_shared();

void report_misaligned(const void* at, std::size_t bytes);

/// A vector load or store at any other address is a fault of the device.
inline void require_aligned(const void* at, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(at) % bytes != 0) {
    report_misaligned(at, bytes);
  }
}

/// Begins the copy of 16 aligned bytes to shared memory. They are poisoned until the
/// wait that covers them, in which `from` is read and the copy made; one that nobody
/// waits for is never made.
void copy_async(void* to_shared, const void* from, bool is_there);
void copy_commit();
void copy_wait(int pending);

// Atomics return the old value. Threads change places at barriers and collectives
// alone, so plain code is atomic here; what a kernel should have made atomic is not
// found out.
template <typename V>
V atomic_exchange(V* at, V value) {
  require_aligned(at, sizeof(V));
  const V old = *at;
  *at = value;
  return old;
}
template <typename V>
V atomic_add(V* at, V value) {
  return atomic_exchange(at, static_cast<V>(*at + value));
}
template <typename V>
V atomic_min(V* at, V value) {
  return atomic_exchange(at, std::min(*at, value));
}
template <typename V>
V atomic_max(V* at, V value) {
  return atomic_exchange(at, std::max(*at, value));
}
/// `*at` becomes `value` where it has the bits of `expected`.
template <typename V>
V atomic_compare_exchange(V* at, V expected, V value) {
  using Bits = std::conditional_t<sizeof(V) == 4, std::uint32_t, std::uint64_t>;
  const bool same = std::bit_cast<Bits>(*at) == std::bit_cast<Bits>(expected);
  return atomic_exchange(at, same ? value : *at);
}

// ---- Conversions as the device makes them

[[nodiscard]] float f16_to_float(unsigned bits);
[[nodiscard]] unsigned float_to_f16(float value);
[[nodiscard]] float exp2_approx(float x);

}  // namespace kiln_cpu
