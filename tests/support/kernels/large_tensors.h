// Offsets beyond 32 bits. An index of int, or a product of two that is widened too
// late, makes a kernel read and write somewhere else from 2^31 elements on.

#pragma once

#include "tests/support/operations/run_operation.h"

namespace kiln_cpu {

/// `small` has run, and its results are proved elsewhere. Runs the last blocks of its
/// first launch with so many more rows (batches of a softmax) in front that each matrix
/// has more than 2^31 elements. What these write must be as in `small`, byte for byte,
/// its last element included; the first rows must not be touched.
void expect_same_in_large_tensors(const kiln::test::Operation& small);

}  // namespace kiln_cpu
