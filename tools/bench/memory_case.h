// A case of a memory-bound operation: its tensors, and the bytes that any kernel moves,
// are those that its plan lists.

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/operation_table.h"
#include "ops/plans.h"
#include "tools/bench/cases.h"

namespace kiln::tools {

#define KILN_BENCHED(function, Args)                                                   \
  inline Result<void> run(Service& service, const Device& device, CUstream_st* stream, \
                          const ops::Args& args) {                                     \
    return ops::function(service, device, stream, args);                               \
  }                                                                                    \
  inline std::string operation_name(const ops::Args&) {                                \
    return #function;                                                                  \
  }
KILN_EACH_OPERATION(KILN_BENCHED)
#undef KILN_BENCHED

/// The goal of a kernel that moves `extra_bytes` more than the least, because the
/// design reads or writes something twice.
[[nodiscard]] inline double goal_of(double goal, std::uint64_t least_bytes,
                                    double extra_bytes) {
  const auto least = static_cast<double>(least_bytes);
  return goal * (least / (least + extra_bytes));
}

/// Gives each pointer of `args` its address, in the order of the operation's table.
template <typename Args>
void point(Args& args, BenchAddresses addresses) {
  std::size_t i = 0;
  ops::for_each_pointer(args, [&](auto*& pointer) {
    pointer = static_cast<std::remove_reference_t<decltype(pointer)>>(addresses[i++]);
  });
}

/// The memory of each pointer of `args` that the plan uses. Those that leave_out()
/// makes null have none.
template <typename Args>
std::vector<BenchTensor> tensors_of(const Device& device, Args args,
                                    void (*leave_out)(Args&)) {
  constexpr unsigned kApart = 44;  // bits; no tensor has 2^44 bytes
  std::vector<void*> places;
  ops::for_each_pointer(args, [&](const auto&) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): nobody uses it as one
    places.push_back(reinterpret_cast<void*>((places.size() + 1) << kApart));
  });
  point(args, places);
  if (leave_out != nullptr)
    leave_out(args);
  std::vector<BenchTensor> tensors(places.size());
  std::vector<ops::Argument> memory;
  // What it refuses, the run refuses, too.
  std::ignore = ops::plan(args, device, ops::Pointers::listed_in(memory));
  for (const ops::Argument& each : memory) {
    const auto begin = reinterpret_cast<std::uintptr_t>(each.begin);
    if (begin == 0 || each.size_bytes == 0)
      continue;
    BenchTensor& tensor = tensors[(begin >> kApart) - 1];
    tensor.is_workspace = each.access == ops::Access::kWorkspace;
    tensor.bytes = std::max(
        tensor.bytes, (begin & ((std::uint64_t{1} << kApart) - 1)) + each.size_bytes);
    if (each.label == "targets" || each.label == "mask_bytes")
      tensor.fill = BenchTensor::Fill::kZeros;  // a word of each vocabulary; no mask
  }
  return tensors;
}

template <typename Args>
struct MemoryCase {
  Args args;  // without pointers
  std::string what;
  double goal;
  double extra_bytes = 0;  // of goal_of()
  std::uint64_t unread_bytes = 0;
  void (*leave_out)(Args&) = nullptr;
};

template <typename Args>
BenchCase case_of(const Device& device, MemoryCase<Args> of) {
  if constexpr (requires { of.args.workspace_bytes; })
    of.args.workspace_bytes = ops::workspace_bytes(device, of.args).value_or(0);
  std::vector<BenchTensor> tensors = tensors_of(device, of.args, of.leave_out);
  std::uint64_t least = 0;
  for (const BenchTensor& tensor : tensors)
    least += tensor.is_workspace ? 0 : tensor.bytes;
  least -= of.unread_bytes;
  return {.operation = operation_name(of.args),
          .what = std::move(of.what),
          .dtype = of.args.dtype,
          .work = BytesMoved{.least = least,
                             .goal = goal_of(of.goal, least, of.extra_bytes)},
          .tensors = std::move(tensors),
          .start = [args = of.args](Service& service, const Device& on,
                                    CUstream_st* stream, BenchAddresses addresses) {
            Args now = args;
            point(now, addresses);
            return run(service, on, stream, now);
          }};
}

}  // namespace kiln::tools
