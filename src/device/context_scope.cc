#include "device/context_scope.h"

namespace kiln::device {

ContextScope::ContextScope(const PrimaryContext& context) : context_(context) {
  const DriverTable& driver = context.driver().table();
  result_ = driver.cuCtxGetCurrent(&before_);
  if (result_ != CUDA_SUCCESS || before_ == context.handle())
    return;
  call_ = "cuCtxPushCurrent";
  result_ = driver.cuCtxPushCurrent(context.handle());
  is_pushed_ = result_ == CUDA_SUCCESS;
}

ContextScope::~ContextScope() {
  if (!is_pushed_)
    return;
  const DriverTable& driver = context_.driver().table();
  CUcontext popped = nullptr;
  CUresult result = driver.cuCtxPopCurrent(&popped);
  // Other code pushed a context and did not pop it: put it back.
  if (result == CUDA_SUCCESS && popped != context_.handle())
    result = driver.cuCtxPushCurrent(popped);
  log_failure(driver, result, "cuCtxPopCurrent");
}

RelaxedCapture::RelaxedCapture(const DriverTable& driver)
    : driver_(driver),
      is_changed_(driver.cuThreadExchangeStreamCaptureMode(&before_) == CUDA_SUCCESS) {}

RelaxedCapture::~RelaxedCapture() {
  if (is_changed_)
    log_failure(driver_, driver_.cuThreadExchangeStreamCaptureMode(&before_),
                "cuThreadExchangeStreamCaptureMode");
}

}  // namespace kiln::device
