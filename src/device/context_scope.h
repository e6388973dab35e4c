// Makes a primary context current for the calling thread, for as long as a scope lasts.

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

  /// What was current to the thread before; null for none.
  [[nodiscard]] CUcontext before() const { return before_; }

 private:
  const PrimaryContext& context_;
  CUcontext before_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;
  bool is_pushed_ = false;
};

}  // namespace kiln::device
