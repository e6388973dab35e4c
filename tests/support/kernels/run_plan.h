// What an operation would launch on a device, run on the CPU.

#pragma once

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "kiln/device.h"
#include "kiln/result.h"
#include "ops/plan.h"
#include "tests/support/kernels/variant.h"

namespace kiln_cpu {

/// Each entry point of the kernels, which are the built-in templates'.
[[nodiscard]] std::vector<Variant> variants_of(
    std::initializer_list<std::string_view> names);

/// The kernels that operations of this program find: those that its CMakeLists.txt
/// gives to kiln_family_test().
[[nodiscard]] const std::vector<Variant>& kernels_of_program();

/// Those of them for which `is` holds.
template <typename Predicate>
[[nodiscard]] std::vector<Variant> kernels_where(Predicate is) {
  std::vector<Variant> some;
  std::ranges::copy_if(kernels_of_program(), std::back_inserter(some), is);
  return some;
}

/// The kernel of `launch` among `variants`; null where it is none of them.
[[nodiscard]] const Variant* find_variant(const kiln::ops::Launch& launch,
                                          std::span<const Variant> variants);

/// Runs the plan's launches one after the other, with the kernels of `variants`.
/// Errors: kNotFound, a kernel that is not among them; those of Variant.
[[nodiscard]] kiln::Result<void> run_plan(kiln::ops::Launches plan,
                                          std::span<const Variant> variants,
                                          const LaunchOptions& options = {});

/// Runs the last `blocks` of the plan's first launch, with the kernels of the program:
/// of a tensor too large to compute all of it. Errors: those of run_plan().
[[nodiscard]] kiln::Result<void> run_last_blocks(kiln::ops::Launches plan,
                                                 std::int64_t blocks);

/// A device to plan for.
[[nodiscard]] kiln::Device planned_device(kiln::ComputeCapability capability = {9, 0},
                                          int multiprocessors = 4);

}  // namespace kiln_cpu
