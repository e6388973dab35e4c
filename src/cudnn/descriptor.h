// cuDNN's descriptors, as far as running a stored plan takes them. There is none that
// is not finalised.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cudnn/handles.h"
#include "kiln/result.h"

namespace kiln::attention {

/// Thread safety: as for a raw pointer.
class CudnnDescriptor {
 public:
  /// An execution plan out of cuDNN's own JSON, for the device of `handle`, whose
  /// context is current. The only way to one: cuDNN 9.19.0 crashes where a stored plan
  /// is finalised without a handle. Errors: kUnavailable, kDevice, naming `on`.
  [[nodiscard]] static Result<CudnnDescriptor> stored_plan(const CudnnHandle& handle,
                                                           std::string_view json,
                                                           std::string_view on);

  /// What a run is given: a pointer for each unique id. Errors: kDevice.
  [[nodiscard]] static Result<CudnnDescriptor> variant_pack(
      const CudnnLibrary& library, std::span<const std::int64_t> ids,
      std::span<void* const> pointers, void* workspace, std::string_view on);

  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;
  ~CudnnDescriptor();

  [[nodiscard]] void* raw() const { return raw_; }

  /// It is left alone from now on: in a forked child, and where the process ends.
  void release() noexcept { raw_ = nullptr; }

 private:
  CudnnDescriptor(CudnnLibrary library, void* raw) : library_(library), raw_(raw) {}

  CudnnLibrary library_;
  void* raw_;  // null: moved from, or left alone
};

}  // namespace kiln::attention
