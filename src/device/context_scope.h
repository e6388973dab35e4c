// Scopes of the calling thread: one for its current context, one for its stream capture
// mode. Each restores the old state at its end.

#pragma once

#include "device/driver_table.h"
#include "device/primary_context.h"

namespace kiln::device {

/// Pushes the context unless it is current already, and pops it at the end, so that the
/// thread has its own context again. Calls nothing that a stream capture forbids.
/// Thread safety: none; use it on the thread that created it.
class ContextScope {
 public:
  /// `context` must outlive the scope. Check result() before anything else.
  explicit ContextScope(const PrimaryContext& context);
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope();

  /// CUDA_SUCCESS: the context is current now. Otherwise nothing was changed.
  [[nodiscard]] CUresult result() const { return result_; }
  /// The driver call that returned result().
  [[nodiscard]] const char* call() const { return call_; }
  /// result() as driver_result() has it.
  [[nodiscard]] Result<void> check(std::string_view on) const {
    return driver_result(context_.driver().table(), result_, call_, on);
  }

  /// The context that was current to the thread before; null if none was.
  [[nodiscard]] CUcontext before() const { return before_; }

 private:
  const PrimaryContext& context_;
  CUcontext before_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;
  const char* call_ = "cuCtxGetCurrent";
  bool is_pushed_ = false;
};

/// Puts the thread into relaxed capture mode. In the default mode, allocating and
/// loading fail while any thread captures a stream, and end that capture. Kernels may
/// be loaded lazily at any time, and what is loaded is part of no graph.
/// Thread safety: none; use it on the thread that created it.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const DriverTable& driver);
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture();

 private:
  const DriverTable& driver_;
  CUstreamCaptureMode before_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool is_changed_ = false;
};

}  // namespace kiln::device
