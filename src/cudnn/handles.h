// cuDNN's handles for one device: one per thread, because threads must not share one.

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

/// Never null. Belongs to the context of its CudnnHandles and to the thread that leases
/// it.
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

/// Thread safety: every method may run concurrently; share through std::shared_ptr.
/// When a thread ends, the next thread that needs a handle takes over its handle, so
/// there are never more handles than there were concurrent threads. The last owner may
/// be destroyed on any thread, in a forked child and at process exit; in the latter two
/// cuDNN is not called.
class CudnnHandles : public std::enable_shared_from_this<CudnnHandles> {
 public:
  /// Creates no handle yet.
  [[nodiscard]] static std::shared_ptr<CudnnHandles> of(
      const CudnnLibrary& library,
      std::shared_ptr<const device::PrimaryContext> context);

  CudnnHandles(const CudnnHandles&) = delete;
  CudnnHandles& operator=(const CudnnHandles&) = delete;
  ~CudnnHandles();

  [[nodiscard]] const CudnnLibrary& library() const { return library_; }
  [[nodiscard]] const device::PrimaryContext& context() const { return *context_; }

  /// Whether cuDNN may be called. Errors: kUnavailable (in a forked child, or when the
  /// process ends).
  [[nodiscard]] Result<void> check_process() const;

  /// The calling thread's handle; null if it has none. Takes no lock.
  [[nodiscard]] const CudnnHandle* find() const noexcept;

  /// The calling thread's handle, created at its first call. Creation takes a while,
  /// allocates on the device, and disturbs no capture. The thread's current context
  /// does not change. Errors: kDevice; as check_process().
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
  const std::uint64_t id_;  // an address could be reused

  Mutex mutex_;
  std::vector<std::unique_ptr<CudnnHandle>> all_ KILN_GUARDED_BY(mutex_);
  std::vector<const CudnnHandle*> free_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::attention
