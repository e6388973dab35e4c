#include "ops/check.h"

#include <algorithm>
#include <array>

#include "util/try.h"

namespace kiln::ops {
namespace {

bool overlap(const Argument& a, const Argument& b) {
  const auto begin_of = [](const Argument& argument) {
    return reinterpret_cast<std::uintptr_t>(argument.begin);
  };
  return a.size_bytes > 0 && b.size_bytes > 0 &&
         begin_of(a) < begin_of(b) + b.size_bytes &&
         begin_of(b) < begin_of(a) + a.size_bytes;
}

Result<void> check_address(const Argument& argument) {
  if (!argument.left_out.empty() && argument.begin != nullptr)
    return refuse("{} is set, and {}: it would be ignored", argument.label,
                  argument.left_out);
  if (argument.size_bytes == 0)
    return {};
  if (argument.begin == nullptr)
    return refuse("{} is null", argument.label);
  if (reinterpret_cast<std::uintptr_t>(argument.begin) % argument.element_bytes != 0)
    return refuse("{} is at {}, no multiple of an element's {} bytes", argument.label,
                  argument.begin, argument.element_bytes);
  return {};
}

}  // namespace

Result<void> check_dtype(DType dtype) {
  if (dtype == DType::kF16 || dtype == DType::kBf16 || dtype == DType::kF32)
    return {};
  return refuse("dtype is not set: f16, bf16 or f32");
}

Result<std::int64_t> element_count(std::span<const Extent> extents) {
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  for (const Extent& extent : extents) {
    if (extent.size == kUnsetSize)
      return refuse("{} is not set", extent.name);
    if (extent.size < 0)
      return refuse("{} is {}", extent.name, extent.size);
  }
  if (std::ranges::count(extents, 0, &Extent::size) > 0)
    return 0;
  std::int64_t count = 1;
  for (const Extent& extent : extents) {
    if (extent.size >= kMost / count)
      return refuse("2^60 elements or more, up to {} = {}", extent.name, extent.size);
    count *= extent.size;
  }
  return count;
}

Result<void> check_memory(const ArgumentLists& kernels, Pointers pointers,
                          Outputs outputs) {
  if (pointers.list() != nullptr)
    for (const auto& kernel : kernels)
      pointers.list()->insert(pointers.list()->end(), kernel.begin(), kernel.end());
  if (!pointers.are_checked())
    return {};
  std::array<const Argument*, 32> all{};  // more than any operation has
  std::size_t count = 0;
  std::size_t input_count = 0;
  for (const Access access : {Access::kReads, Access::kWrites, Access::kWorkspace}) {
    for (const auto& kernel : kernels) {
      for (const Argument& argument : kernel) {
        if (argument.access == access)
          all.at(count++) = &argument;
      }
    }
    input_count = access == Access::kReads ? count : input_count;
  }
  for (std::size_t i = 0; i < count; ++i)  // outputs first
    KILN_TRY(check_address(*all[(input_count + i) % count]));
  for (std::size_t output = input_count; output < count; ++output) {
    for (std::size_t other = 0; other < output; ++other) {
      const bool is_input = other < input_count;
      if ((is_input || outputs == Outputs::kApart) &&
          overlap(*all[output], *all[other]))
        return refuse("{} overlaps {}{}", all[output]->label, all[other]->label,
                      is_input ? ": it works out of place" : "");
    }
  }
  return {};
}

Result<void> check_workspace(const void* workspace, std::uint64_t workspace_bytes,
                             std::uint64_t needed) {
  const bool is_given = workspace != nullptr || workspace_bytes != 0;
  if (!is_given || workspace_bytes >= needed)
    return {};
  return refuse("workspace_bytes is {}: {} are needed", workspace_bytes, needed);
}

}  // namespace kiln::ops
