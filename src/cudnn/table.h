// cuDNN's functions, looked up once per library, and the ABI constants that they take.
// The constants are repeated here because a machine that builds Kiln need not have
// cuDNN's headers; where it has, cudnn_abi_test compares them. Include this only to
// call the functions, else include library.h.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <type_traits>

#include "attention/cudnn_version.h"
#include "kiln/result.h"

struct CUstream_st;
struct cudnnContext;

namespace kiln::attention {

namespace cudnn {

using Handle = cudnnContext*;
using Descriptor = void*;

enum class Status : int {
  kSuccess = 0,
  kSublibraryVersionMismatch = 1002,
  kSerializationVersionMismatch = 1003,
  kArchMismatch = 3007,
  kExecutionFailed = 5000,
};

enum class DescriptorKind : int {
  kExecutionPlan = 5,
  kVariantPack = 16,
  kDeviceProperties = 38,
};

enum class Attribute : int {
  kPlanHandle = 400,
  kPlanJson = 405,
  kPlanDeviceProperties = 407,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kDevicePropertiesJson = 2702,
};

enum class AttributeType : int {
  kHandle = 0,
  kInt64 = 3,
  kPointer = 6,
  kDescriptor = 15,
  kChar = 24,
};

}  // namespace cudnn

// Name and type of each function. cuDNN 9.0 has them all.
#define KILN_CUDNN_FUNCTIONS(X)                                              \
  X(cudnnGetVersion, std::size_t())                                          \
  X(cudnnGetErrorString, const char*(cudnn::Status))                         \
  X(cudnnGetLastErrorString, void(char*, std::size_t))                       \
  X(cudnnCreate, cudnn::Status(cudnn::Handle*))                              \
  X(cudnnDestroy, cudnn::Status(cudnn::Handle))                              \
  X(cudnnSetStream, cudnn::Status(cudnn::Handle, CUstream_st*))              \
  X(cudnnBackendCreateDescriptor,                                            \
    cudnn::Status(cudnn::DescriptorKind, cudnn::Descriptor*))                \
  X(cudnnBackendDestroyDescriptor, cudnn::Status(cudnn::Descriptor))         \
  X(cudnnBackendSetAttribute,                                                \
    cudnn::Status(cudnn::Descriptor, cudnn::Attribute, cudnn::AttributeType, \
                  std::int64_t, const void*))                                \
  X(cudnnBackendGetAttribute,                                                \
    cudnn::Status(cudnn::Descriptor, cudnn::Attribute, cudnn::AttributeType, \
                  std::int64_t, std::int64_t*, void*))                       \
  X(cudnnBackendFinalize, cudnn::Status(cudnn::Descriptor))                  \
  X(cudnnBackendExecute,                                                     \
    cudnn::Status(cudnn::Handle, cudnn::Descriptor, cudnn::Descriptor))

/// Never destroyed, because the library is never closed.
struct CudnnTable {
  std::filesystem::path path;
  CudnnVersion version;
// NOLINTNEXTLINE(bugprone-macro-parentheses): a member's name and type
#define KILN_CUDNN_MEMBER(name, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  KILN_CUDNN_FUNCTIONS(KILN_CUDNN_MEMBER)
#undef KILN_CUDNN_MEMBER
  // cuDNN loads libraries of its own at these events; see
  // CudnnLibrary::watch_the_end().
  mutable std::once_flag first_handle{};
  mutable std::once_flag first_plan{};
};

/// The only conversion of cuDNN's status to an Error: "cudnnCreate, device 0 (NVIDIA
/// H100): CUDNN_STATUS_NOT_INITIALIZED (1001): " and cuDNN's last message on this
/// thread. `on` names what the call was for; empty: nothing. kUnavailable if a plan is
/// for another version or device, else kDevice.
[[nodiscard]] tl::unexpected<Error> cudnn_error(const CudnnTable& table,
                                                cudnn::Status status,
                                                std::string_view call,
                                                std::string_view on);

/// The same as a result, which kSuccess is no error of.
[[nodiscard]] inline Result<void> cudnn_result(const CudnnTable& table,
                                               cudnn::Status status,
                                               std::string_view call,
                                               std::string_view on) {
  if (status == cudnn::Status::kSuccess)
    return {};
  return cudnn_error(table, status, call, on);
}

/// For destructors: logs a failure at debug.
void log_failure(const CudnnTable& table, cudnn::Status status, std::string_view call,
                 std::string_view on) noexcept;

}  // namespace kiln::attention
