#include "cudnn/handles.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "cudnn/table.h"
#include "device/context_scope.h"
#include "util/try.h"

namespace kiln::attention {

/// A thread's lease of a handle, which ends with the thread.
struct HandleLease {
  std::uint64_t id;  // of its CudnnHandles
  std::weak_ptr<CudnnHandles> owner;
  const CudnnHandle* handle;

  void end() const {
    if (const auto still_there = owner.lock())
      still_there->give_back(handle);
  }
};

namespace {

using device::label_of;

class ThreadLeases {
 public:
  ThreadLeases() = default;
  ThreadLeases(const ThreadLeases&) = delete;
  ThreadLeases& operator=(const ThreadLeases&) = delete;
  ~ThreadLeases() {
    for (const HandleLease& lease : leases_) lease.end();
  }

  [[nodiscard]] const CudnnHandle* find(std::uint64_t id) const noexcept {
    const auto found = std::ranges::find(leases_, id, &HandleLease::id);
    return found == leases_.end() ? nullptr : found->handle;
  }

  void add(HandleLease lease) {
    std::erase_if(leases_,
                  [](const HandleLease& each) { return each.owner.expired(); });
    leases_.push_back(std::move(lease));
  }

 private:
  std::vector<HandleLease> leases_;  // few: one per device
};

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
thread_local ThreadLeases leases_of_thread;

std::uint64_t next_id() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

}  // namespace

CudnnHandles::CudnnHandles(const CudnnLibrary& library,
                           std::shared_ptr<const device::PrimaryContext> context)
    : library_(library), context_(std::move(context)), id_(next_id()) {}

std::shared_ptr<CudnnHandles> CudnnHandles::of(
    const CudnnLibrary& library,
    std::shared_ptr<const device::PrimaryContext> context) {
  return std::shared_ptr<CudnnHandles>(new CudnnHandles(library, std::move(context)));
}

CudnnHandles::~CudnnHandles() {
  if (!check_process())
    return;
  const device::DriverTable& driver = context_->driver().table();
  const device::RelaxedCapture relaxed(driver);
  const device::ContextScope scope(*context_);
  if (scope.result() != CUDA_SUCCESS) {
    device::log_failure(driver, scope.result(), scope.call());
    return;
  }
  const MutexLock lock(mutex_);
  for (const auto& handle : all_)
    log_failure(library_.table(), library_.table().cudnnDestroy(handle->raw()),
                "cudnnDestroy", context_->device().name);
}

Result<void> CudnnHandles::check_process() const {
  if (CudnnLibrary::process_is_ending())
    return fail(ErrorCode::kUnavailable, "cuDNN has ended with the process");
  if (!context_->is_of_this_process())
    return fail(ErrorCode::kUnavailable,
                "this process was forked after cuDNN was started; start it with exec "
                "instead");
  return {};
}

const CudnnHandle* CudnnHandles::find() const noexcept {
  return leases_of_thread.find(id_);
}

Result<const CudnnHandle*> CudnnHandles::get() {
  KILN_TRY(check_process());
  if (const CudnnHandle* const present = find())
    return present;
  const CudnnHandle* mine = take_free();
  if (mine == nullptr) {
    auto made = KILN_TRY(make());
    mine = made.get();
    const MutexLock lock(mutex_);
    all_.push_back(std::move(made));
  }
  leases_of_thread.add({.id = id_, .owner = weak_from_this(), .handle = mine});
  return mine;
}

Result<std::unique_ptr<CudnnHandle>> CudnnHandles::make() const {
  const device::DriverTable& driver = context_->driver().table();
  const std::string on = label_of(context_->device());
  const device::RelaxedCapture relaxed(driver);
  const device::ContextScope scope(*context_);
  KILN_TRY(scope.check(on));
  cudnn::Handle raw = nullptr;
  const CudnnTable& table = library_.table();
  KILN_TRY(cudnn_result(table, table.cudnnCreate(&raw), "cudnnCreate", on));
  std::call_once(table.first_handle, CudnnLibrary::watch_the_end);
  return std::unique_ptr<CudnnHandle>(new CudnnHandle(library_, raw));
}

const CudnnHandle* CudnnHandles::take_free() {
  const MutexLock lock(mutex_);
  if (free_.empty())
    return nullptr;
  const CudnnHandle* const handle = free_.back();
  free_.pop_back();
  return handle;
}

void CudnnHandles::give_back(const CudnnHandle* handle) {
  if (!context_->is_of_this_process())
    return;  // a thread that the child lacks may hold the lock
  const MutexLock lock(mutex_);
  free_.push_back(handle);
}

}  // namespace kiln::attention
