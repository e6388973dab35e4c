// Checks of an operation's arguments, made before any kernel is fetched. An error names
// the argument; named() adds the operation.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "kiln/ops/dtype.h"
#include "kiln/result.h"
#include "ops/arguments.h"
#include "util/try.h"

namespace kiln::ops {

/// Puts the operation before the refusal of an argument: "softmax_forward: <why>".
template <typename Value>
[[nodiscard]] Result<Value> named(std::string_view operation, Result<Value> result) {
  if (!result && result.error().code == ErrorCode::kInvalidArgument)
    result.error().message.insert(0, std::string(operation) + ": ");
  return result;
}

[[nodiscard]] Result<void> check_dtype(DType dtype);

struct Extent {
  std::string_view name;
  std::int64_t size;
};

/// The product of the extents. Errors: an extent that is unset or below 0; 2^60
/// elements or more.
[[nodiscard]] Result<std::int64_t> element_count(std::span<const Extent> extents);
[[nodiscard]] inline Result<std::int64_t> element_count(
    std::initializer_list<Extent> extents) {
  return element_count(std::span(extents.begin(), extents.size()));
}

/// Whether the address ranges of two outputs may interleave.
enum class Outputs : std::uint8_t { kApart, kInterleaved };

/// Checks all memory that the kernels' arguments declare. Memory that is not empty has
/// an address, which is a multiple of the element size. Memory that is left out has
/// none. No output overlaps an input or another output, unless `outputs` allows the
/// latter.
[[nodiscard]] Result<void> check_memory(const ArgumentLists& kernels, Pointers pointers,
                                        Outputs outputs = Outputs::kApart);

/// Checks that a workspace is large enough, if there is one: prepare() is given none,
/// and check_memory() reports one that is missing.
[[nodiscard]] Result<void> check_workspace(const void* workspace,
                                           std::uint64_t workspace_bytes,
                                           std::uint64_t needed);

}  // namespace kiln::ops
