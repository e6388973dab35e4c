// The cuDNN descriptors that a run of a stored plan needs. All of them are finalised.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "cudnn/handles.h"
#include "cudnn/table.h"
#include "kiln/result.h"

namespace kiln::attention {

/// Thread safety: as for a raw pointer.
class CudnnDescriptor {
 public:
  /// An execution plan from cuDNN's own JSON, for the device of `handle`, whose context
  /// must be current. There is no other way to make one: cuDNN 9.19.0 crashes if a
  /// stored plan is finalised without a handle. Errors: kUnavailable, kDevice, naming
  /// `on`.
  [[nodiscard]] static Result<CudnnDescriptor> stored_plan(const CudnnHandle& handle,
                                                           std::string_view json,
                                                           std::string_view on);

  /// The arguments of a run: a pointer for each unique id. Errors: kDevice.
  [[nodiscard]] static Result<CudnnDescriptor> variant_pack(
      const CudnnLibrary& library, std::span<const std::int64_t> ids,
      std::span<void* const> pointers, void* workspace, std::string_view on);

  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;
  ~CudnnDescriptor();

  [[nodiscard]] void* raw() const { return raw_; }

  /// Gives up the descriptor without destroying it: in a forked child, or at process
  /// exit.
  void release() noexcept { raw_ = nullptr; }

 private:
  struct Value {
    cudnn::Attribute name;
    cudnn::AttributeType type;
    std::size_t count;
    const void* first;
  };

  explicit CudnnDescriptor(const CudnnLibrary& library) : library_(library) {}
  /// One of `kind` with these values.
  [[nodiscard]] static Result<CudnnDescriptor> make(const CudnnLibrary& library,
                                                    cudnn::DescriptorKind kind,
                                                    std::initializer_list<Value> values,
                                                    std::string_view on);

  CudnnLibrary library_;
  void* raw_ = nullptr;  // null: moved from, or released
};

}  // namespace kiln::attention
