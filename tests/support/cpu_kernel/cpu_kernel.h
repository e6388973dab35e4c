// What templates/prelude.cuh needs to run kernels on a CPU: where the calling thread of
// the kernel is, and what threads of a block or a warp do together. Works inside
// kiln_cpu::launch() only (executor.h). A rendered kernel is compiled after this
// header.

#pragma once

#include <math.h>  // NOLINT(modernize-deprecated-headers): kernels call ::expf

#include <cstddef>

namespace kiln_cpu {

[[nodiscard]] int thread();
[[nodiscard]] int threads();
[[nodiscard]] long long block();
[[nodiscard]] long long blocks();

/// Returns when every thread of the block is here or has ended.
void sync_threads();

/// The value that the thread `lane ^ lanes` of this warp gives; returns when all lanes
/// in `mask` are here. One that never comes ends the launch with an error.
[[nodiscard]] float shuffle_xor(unsigned mask, float value, int lanes);

/// The block's memory for `tag`, filled with NaN when a block begins.
[[nodiscard]] void* shared_array(const void* tag, std::size_t bytes);

[[nodiscard]] float f16_to_float(unsigned bits);
[[nodiscard]] unsigned float_to_f16(float value);
[[nodiscard]] float exp2_approx(float x);

}  // namespace kiln_cpu
