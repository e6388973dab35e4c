// What is checked of an operation's arguments before anything is fetched. Every error
// names operation and argument.

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

/// How many elements that is. Errors: an extent below 0; 2^60 elements or more.
[[nodiscard]] Result<std::int64_t> element_count(std::string_view operation,
                                                 std::span<const Extent> extents);
[[nodiscard]] inline Result<std::int64_t> element_count(
    std::string_view operation, std::initializer_list<Extent> extents) {
  return element_count(operation, std::span(extents.begin(), extents.size()));
}

/// May outputs reach into each other?
enum class Outputs : std::uint8_t { kApart, kInterleaved };

/// Of all memory that the arguments of an operation's kernels declare: that it has an
/// address, a multiple of its element's size, unless it is empty; that what is left out
/// has none; and that no output overlaps an input or another output.
[[nodiscard]] Result<void> check_memory(std::string_view operation,
                                        const ArgumentLists& kernels, Pointers pointers,
                                        Outputs outputs = Outputs::kApart);

/// That a workspace has the bytes that are needed, if there is one: prepare() is given
/// none, and where one is missing check_memory() says so.
[[nodiscard]] Result<void> check_workspace(std::string_view operation,
                                           const void* workspace,
                                           std::uint64_t workspace_bytes,
                                           std::uint64_t needed);

}  // namespace kiln::ops
