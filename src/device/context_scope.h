// What a scope changes for the calling thread and gives back: its current context, and
// what it may do while streams are captured.

#pragma once

#include "device/driver_table.h"
#include "device/primary_context.h"

namespace kiln::device {

/// Pushes the context unless it is current already, and pops what it pushed, so that
/// the thread finds its own context again. Calls nothing that a stream capture forbids.
/// Thread safety: none; it belongs to the thread that made it.
class ContextScope {
 public:
  /// `context` must outlive the scope. Look at result() before anything else.
  explicit ContextScope(const PrimaryContext& context);
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ContextScope(ContextScope&&) = delete;
  ContextScope& operator=(ContextScope&&) = delete;
  ~ContextScope();

  /// CUDA_SUCCESS: the context is current now. Otherwise nothing was changed.
  [[nodiscard]] CUresult result() const { return result_; }
  /// Which call gave it.
  [[nodiscard]] const char* call() const { return call_; }

  /// What was current to the thread before; null for none.
  [[nodiscard]] CUcontext before() const { return before_; }

 private:
  const PrimaryContext& context_;
  CUcontext before_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;
  const char* call_ = "cuCtxGetCurrent";
  bool is_pushed_ = false;
};

/// Allocating and loading are refused while any thread captures a stream, and end that
/// capture, unless the thread says that it knows. Who gets a kernel lazily does so in
/// the middle of everything; what is loaded is no part of anybody's graph.
/// Thread safety: none; it belongs to the thread that made it.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const DriverTable& driver);
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  RelaxedCapture(RelaxedCapture&&) = delete;
  RelaxedCapture& operator=(RelaxedCapture&&) = delete;
  ~RelaxedCapture();

 private:
  const DriverTable& driver_;
  CUstreamCaptureMode before_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool is_changed_ = false;
};

}  // namespace kiln::device
