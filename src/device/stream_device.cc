#include "device/stream_device.h"

#include <fmt/format.h>

#include <array>

#include "util/try.h"

namespace kiln::device {

bool is_default_stream(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY ||
         stream == CU_STREAM_PER_THREAD;
}

std::optional<CUdevice> device_of(const DriverTable& driver, CUcontext context) {
  CUdevice device = 0;
  CUcontext current = nullptr;
  if (driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context)
    return driver.cuCtxGetDevice(&device) == CUDA_SUCCESS ? std::optional(device)
                                                          : std::nullopt;
  if (driver.cuCtxPushCurrent(context) != CUDA_SUCCESS)
    return std::nullopt;
  const bool is_known = driver.cuCtxGetDevice(&device) == CUDA_SUCCESS;
  CUcontext popped = nullptr;
  log_failure(driver, driver.cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
  return is_known ? std::optional(device) : std::nullopt;
}

Result<std::optional<int>> device_of(const Driver& driver, CUstream_st* stream) {
  const DriverTable& table = driver.table();
  CUcontext context = nullptr;
  const bool is_default = is_default_stream(stream);
  const CUresult result = is_default ? table.cuCtxGetCurrent(&context)
                                     : table.cuStreamGetCtx(stream, &context);
  KILN_TRY(
      driver_result(table, result, is_default ? "cuCtxGetCurrent" : "cuStreamGetCtx"));
  if (context == nullptr)
    return std::nullopt;
  if (const std::optional<CUdevice> device = device_of(table, context))
    return *device;  // a CUdevice is its ordinal
  return fail(ErrorCode::kDevice, "the driver does not tell the stream's device");
}

std::string describe_owner(const PrimaryContext& ours, CUcontext other) {
  const DriverTable& driver = ours.driver().table();
  const std::optional<CUdevice> device = device_of(driver, other);
  std::array<char, 256> name{};
  if (!device || driver.cuDeviceGetName(name.data(), static_cast<int>(name.size() - 1),
                                        *device) != CUDA_SUCCESS)
    return "another context";
  const bool is_ours = *device == ours.device().ordinal;
  return fmt::format("{}device {} ({})", is_ours ? "another context of " : "", *device,
                     name.data());
}

StreamFit fit_of(const PrimaryContext& context, CUstream stream, CUcontext before) {
  if (is_default_stream(stream)) {
    if (before == nullptr || before == context.handle())
      return {};
    return {.why_not = fmt::format(
                "the default stream is of the current context, of {}; make the context "
                "of {} current, or pass a stream of that device",
                describe_owner(context, before), label_of(context.device()))};
  }
  CUcontext owner = nullptr;
  const CUresult result = context.driver().table().cuStreamGetCtx(stream, &owner);
  if (result != CUDA_SUCCESS || owner == context.handle())
    return {.result = result, .why_not = {}};
  return {.why_not =
              fmt::format("the stream is of {}; pass a stream of {}",
                          describe_owner(context, owner), label_of(context.device()))};
}

Result<bool> is_capturing(const DriverTable& driver, CUstream_st* stream,
                          std::string_view on) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver.cuStreamIsCapturing(stream, &status);
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    return true;
  KILN_TRY(driver_result(driver, result, "cuStreamIsCapturing", on));
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace kiln::device
