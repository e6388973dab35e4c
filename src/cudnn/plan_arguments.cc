#include "cudnn/plan_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "device/memory_device.h"
#include "util/try.h"

namespace kiln::attention {
namespace {

using device::label_of;
using device::PrimaryContext;

template <typename... Values>
tl::unexpected<Error> refused(std::string_view on, fmt::format_string<Values...> why,
                              Values&&... values) {
  return refuse("{}: {}", on, fmt::format(why, std::forward<Values>(values)...));
}

std::string words(std::span<const TensorRole> roles) {
  std::vector<std::string_view> all;
  for (const TensorRole role : roles) all.push_back(to_string(role));
  return fmt::format("{}", fmt::join(all, ", "));
}

bool is_known(TensorRole role) {
  return role >= TensorRole::kQ && role <= kLastTensorRole;
}

std::size_t alignment_of(TensorRole role) {
  switch (role) {
    case TensorRole::kLengthsQ:
    case TensorRole::kLengthsKv:
    case TensorRole::kOffsetsQ:
    case TensorRole::kOffsetsK:
    case TensorRole::kOffsetsV:
    case TensorRole::kOffsetsO:
      return sizeof(std::int32_t);
    case TensorRole::kDropoutSeed:
    case TensorRole::kDropoutOffset:  // often the second half of 16 bytes
      return sizeof(std::int64_t);
    case TensorRole::kScale:
      return sizeof(float);
    default:
      return 16;
  }
}

bool is_aligned(const void* pointer, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

Result<void> check_pointer(const PrimaryContext& context, const TensorPointer& tensor,
                           std::string_view on) {
  const std::string_view name = to_string(tensor.role);
  const std::size_t alignment = alignment_of(tensor.role);
  if (!is_aligned(tensor.pointer, alignment))
    return refused(on, "tensor {} is not aligned to {} bytes", name, alignment);
  if (tensor.role == TensorRole::kScale) {
    if (!KILN_TRY(device::is_host_readable(context, tensor.pointer)))
      return refused(
          on,
          "{} is read by the host, and is device memory; pass the address of a float",
          name);
    return {};
  }
  const std::string why = KILN_TRY(device::why_not_memory_of(context, tensor.pointer));
  if (!why.empty())
    return refused(on, "tensor {} cannot be used: {}; pass memory of {}", name, why,
                   label_of(context.device()));
  return {};
}

// The index of `role` among the plan's tensors.
Result<std::size_t> place_of(const Plan& plan, TensorRole role, std::string_view on) {
  if (!is_known(role))
    return refused(on, "there is no tensor of role {}", static_cast<unsigned>(role));
  const auto found = std::ranges::find(plan.tensors, role);
  if (found == plan.tensors.end())
    return refused(on, "it takes no tensor {}; it takes {}", to_string(role),
                   words(plan.tensors));
  return static_cast<std::size_t>(found - plan.tensors.begin());
}

}  // namespace

Result<std::vector<void*>> arrange_tensors(const Plan& plan,
                                           const PrimaryContext& context,
                                           std::span<const TensorPointer> tensors,
                                           std::string_view on) {
  std::vector<void*> pointers(plan.tensors.size());
  for (const TensorPointer& tensor : tensors) {
    void*& pointer = pointers[KILN_TRY(place_of(plan, tensor.role, on))];
    if (tensor.pointer == nullptr)
      return refused(on, "tensor {} is null", to_string(tensor.role));
    if (pointer != nullptr)
      return refused(on, "tensor {} is given twice", to_string(tensor.role));
    KILN_TRY(check_pointer(context, tensor, on));
    pointer = tensor.pointer;
  }
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    if (pointers[i] == nullptr)
      return refused(on, "tensor {} is missing; it takes {}",
                     to_string(plan.tensors[i]), words(plan.tensors));
  }
  return pointers;
}

Result<void> check_workspace(const Plan& plan, const PrimaryContext& context,
                             WorkspaceMemory workspace, std::string_view on) {
  const std::uint64_t needed = plan.workspace_bytes();
  if (needed == 0)
    return {};
  if (workspace.pointer == nullptr || workspace.bytes < needed)
    return refused(on, "it needs a workspace of {} bytes, and {}", needed,
                   workspace.pointer == nullptr
                       ? "none was given"
                       : fmt::format("{} were given", workspace.bytes));
  if (!is_aligned(workspace.pointer, kWorkspaceAlignment))
    return refused(on, "the workspace is not aligned to {} bytes", kWorkspaceAlignment);
  const std::string why =
      KILN_TRY(device::why_not_memory_of(context, workspace.pointer));
  if (!why.empty())
    return refused(on, "the workspace cannot be used: {}; pass memory of {}", why,
                   label_of(context.device()));
  return {};
}

}  // namespace kiln::attention
