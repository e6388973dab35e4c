// cuDNN's handles for one device: one a thread, as two threads must not share one.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cudnn/library.h"
#include "device/primary_context.h"
#include "kiln/result.h"
#include "util/mutex.h"

struct cudnnContext;

namespace kiln::attention {

/// Never null. Belongs to the context of its CudnnHandles and to the thread that was
/// given it.
class CudnnHandle {
 public:
  [[nodiscard]] cudnnContext* raw() const { return raw_; }
  [[nodiscard]] const CudnnLibrary& library() const { return library_; }

 private:
  friend class CudnnHandles;
  CudnnHandle(CudnnLibrary library, cudnnContext* raw) : library_(library), raw_(raw) {}

  const CudnnLibrary library_;
  cudnnContext* const raw_;
};

/// Thread safety: every method may run concurrently; share through std::shared_ptr. A
/// thread that ends leaves its handle to the next that asks, so there are never more
/// than there were threads at a time. The last owner may go on any thread, in a process
/// forked since and while the process ends; neither of those calls cuDNN.
class CudnnHandles : public std::enable_shared_from_this<CudnnHandles> {
 public:
  /// Makes no handle yet.
  [[nodiscard]] static std::shared_ptr<CudnnHandles> of(
      const CudnnLibrary& library,
      std::shared_ptr<const device::PrimaryContext> context);

  CudnnHandles(const CudnnHandles&) = delete;
  CudnnHandles& operator=(const CudnnHandles&) = delete;
  CudnnHandles(CudnnHandles&&) = delete;
  CudnnHandles& operator=(CudnnHandles&&) = delete;
  ~CudnnHandles();

  [[nodiscard]] const CudnnLibrary& library() const { return library_; }
  [[nodiscard]] const device::PrimaryContext& context() const { return *context_; }

  /// Whether cuDNN may be called. Errors: kUnavailable (a process forked since, or one
  /// that is ending).
  [[nodiscard]] Result<void> check_process() const;

  /// The calling thread's; null where it has none. Takes no lock.
  [[nodiscard]] const CudnnHandle* find() const noexcept;

  /// The calling thread's, made at its first call: that takes cuDNN a while, allocates
  /// on the device, and disturbs no capture. What is current to the thread stays so.
  /// Errors: kDevice; as check_process().
  [[nodiscard]] Result<const CudnnHandle*> get();

 private:
  friend struct HandleLease;

  CudnnHandles(const CudnnLibrary& library,
               std::shared_ptr<const device::PrimaryContext> context);
  [[nodiscard]] Result<std::unique_ptr<CudnnHandle>> make() const;
  [[nodiscard]] const CudnnHandle* take_free();
  void give_back(const CudnnHandle* handle);

  // Constant after construction.
  const CudnnLibrary library_;
  const std::shared_ptr<const device::PrimaryContext> context_;
  const std::uint64_t id_;  // an address may be another's later

  Mutex mutex_;
  std::vector<std::unique_ptr<CudnnHandle>> all_ KILN_GUARDED_BY(mutex_);
  std::vector<const CudnnHandle*> free_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::attention
