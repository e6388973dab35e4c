// What tensor cores do with the matrices that the lanes of a warp hold together. It
// knows nothing of who waits for whom.

#pragma once

#include <array>
#include <cstddef>

#include "tests/support/cpu_kernel/cpu_kernel.h"

namespace kiln_cpu {

/// What a lane brings to a load: the 16 bytes that it gave the address of, as they were
/// when it came, and where the words go.
struct MatrixRow {
  std::array<unsigned, 4> bytes;
  unsigned* words;
};

/// What a lane brings to a product: its fragments.
struct MatrixFragments {
  float* d;
  const unsigned* a;  // 4 words, for k8 2
  const unsigned* b;  // 2 words, for k8 1
};

/// Whether it is one of those: the whole warp takes part.
[[nodiscard]] bool is_of_matrices(Collective what);

/// Of all lanes their MatrixRow or MatrixFragments, and for all of them the result. Of
/// a product every summand is exact and added in float, in the order of k: a device may
/// add in another one.
void complete_matrices(Collective what, const std::array<void*, kWarpLanes>& lanes);

}  // namespace kiln_cpu
