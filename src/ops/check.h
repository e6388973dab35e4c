// Checks of an operation's arguments, made before any kernel is fetched. Every error
// names the operation and the argument.

#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "kiln/ops/dtype.h"
#include "kiln/result.h"
#include "ops/arguments.h"

namespace kiln::ops {

/// "softmax_forward: <why>".
[[nodiscard]] tl::unexpected<Error> refuse(std::string_view operation,
                                           std::string_view why);

[[nodiscard]] Result<void> check_dtype(std::string_view operation, DType dtype);

struct Extent {
  std::string_view name;
  std::int64_t size;
};

/// The product of the extents. Errors: an extent that is unset or below 0; 2^60
/// elements or more.
[[nodiscard]] Result<std::int64_t> element_count(std::string_view operation,
                                                 std::span<const Extent> extents);
[[nodiscard]] inline Result<std::int64_t> element_count(
    std::string_view operation, std::initializer_list<Extent> extents) {
  return element_count(operation, std::span(extents.begin(), extents.size()));
}

/// Whether the address ranges of two outputs may interleave.
enum class Outputs : std::uint8_t { kApart, kInterleaved };

/// Checks all memory that the kernels' arguments declare. Memory that is not empty has
/// an address, which is a multiple of the element size. Memory that is left out has
/// none. No output overlaps an input or another output, unless `outputs` allows the
/// latter.
[[nodiscard]] Result<void> check_memory(std::string_view operation,
                                        const ArgumentLists& kernels, Pointers pointers,
                                        Outputs outputs = Outputs::kApart);

/// Checks that a workspace is large enough, if there is one: prepare() is given none,
/// and check_memory() reports one that is missing.
[[nodiscard]] Result<void> check_workspace(std::string_view operation,
                                           const void* workspace,
                                           std::uint64_t workspace_bytes,
                                           std::uint64_t needed);

}  // namespace kiln::ops
