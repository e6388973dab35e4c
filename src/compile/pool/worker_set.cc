#include "compile/pool/worker_set.h"

#include <fmt/format.h>

#include "kiln/version.h"
#include "util/this_library.h"
#include "util/try.h"
#include "util/write_file.h"

namespace kiln::compile {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kStartLimit{30};

}  // namespace

WorkerSet::Permit::~Permit() {
  const MutexLock lock(workers_.mutex_);
  --workers_.busy_;
  workers_.changed_.notify_all();
}

WorkerSet::Alone::Alone(WorkerSet& workers)
    : workers_(workers),
      place_(workers.alone_.insert(workers.alone_.end(), Waiting{})) {}

WorkerSet::Alone::~Alone() {
  const MutexLock lock(workers_.mutex_);
  workers_.alone_.erase(place_);
  workers_.changed_.notify_all();
}

WorkerSet::WorkerSet(LazyCount max_workers, WorkerSearch search,
                     std::vector<std::string> environment, OwnFolder scratch,
                     WorkerMemory& memory, unsigned max_idle)
    : max_workers_(std::move(max_workers)),
      search_(std::move(search)),
      environment_(std::move(environment)),
      scratch_(std::move(scratch)),
      memory_(memory),
      max_idle_(max_idle) {}

WorkerSet::~WorkerSet() = default;

Result<std::unique_ptr<WorkerSet::Permit>> WorkerSet::acquire_permit(
    const std::stop_token& stop) {
  // Declared before the lock: its destructor may have to wait for the callback.
  const std::stop_callback wake(stop, [this] {
    const MutexLock lock(mutex_);
    changed_.notify_all();
  });
  const unsigned most = max_workers_.get();
  const MutexLock lock(mutex_);
  const auto turn = queue_.insert(queue_.end(), Waiting{});
  while (!stop.stop_requested() &&
         (turn != queue_.begin() || !alone_.empty() || busy_ >= most ||
          (busy_ > 0 && busy_ >= max_workers_.now())))
    changed_.wait(mutex_);
  queue_.erase(turn);
  changed_.notify_all();  // there may be a permit for the next one
  if (stop.stop_requested())
    return fail(ErrorCode::kCancelled, "cancelled while queued for a compile worker");
  auto permit = std::make_unique<Permit>(*this);  // if that throws, none is lost
  ++busy_;
  return permit;
}

Result<std::unique_ptr<WorkerSet::Alone>> WorkerSet::be_alone(
    const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    const MutexLock lock(mutex_);
    changed_.notify_all();
  });
  std::unique_ptr<Alone> alone;  // its destructor takes the mutex
  std::vector<Idle> ended;
  {
    const MutexLock lock(mutex_);
    alone = std::make_unique<Alone>(*this);
    changed_.notify_all();  // one more of those who have a permit is at rest
    while (!stop.stop_requested() &&
           (alone->place() != alone_.begin() || busy_ != alone_.size()))
      changed_.wait(mutex_);
    ended.swap(idle_);
  }
  if (stop.stop_requested())
    return fail(ErrorCode::kCancelled, "cancelled while other builds ended");
  return alone;
}

Result<WorkerProcess> WorkerSet::acquire(const Libraries& libraries,
                                         const std::stop_token& stop,
                                         BuildWatch& watch) {
  if (auto idle = take_idle(libraries))
    return *std::move(idle);
  watch.enter(BuildPhase::kStarting);
  return start(stop);
}

void WorkerSet::release(const Libraries& libraries, WorkerProcess worker) {
  std::optional<Idle> ended;  // destroyed after the lock, as in take_idle()
  const MutexLock lock(mutex_);
  idle_.push_back({libraries, std::move(worker)});
  if (max_idle_ == 0 || idle_.size() <= max_idle_)
    return;
  ended = std::move(idle_.front());
  idle_.erase(idle_.begin());
}

std::optional<WorkerProcess> WorkerSet::take_idle(const Libraries& libraries) {
  std::vector<Idle> ended;  // destroyed after the lock: reaping takes time
  const MutexLock lock(mutex_);
  std::optional<WorkerProcess> found;
  for (std::size_t i = idle_.size(); i-- > 0 && !found;) {
    const auto at = idle_.begin() + static_cast<std::ptrdiff_t>(i);
    if (!at->process.alive()) {
      ended.push_back(std::move(*at));
      idle_.erase(at);
    } else if (at->libraries == libraries) {
      found = std::move(at->process);
      idle_.erase(at);
    }
  }
  // End idle workers with other libraries: at most max_workers_ live at a time.
  while (!found && !idle_.empty() && busy_ + idle_.size() > max_workers_.now()) {
    ended.push_back(std::move(idle_.front()));
    idle_.erase(idle_.begin());
  }
  return found;
}

/// With the scratch folder, if there is one: a worker can make no folder there later.
std::vector<std::string> WorkerSet::environment() const {
  auto all = environment_;
  if (scratch_.empty())
    return all;
  const auto folder = scratch_.path() / kScratchName;
  if (make_folder(scratch_.path()) && scratch_.check() && make_folder(folder) &&
      scratch_.has(kScratchName).value_or(false))
    all.push_back(fmt::format("{}={}", kScratchVariable, folder.native()));
  return all;
}

Result<WorkerProcess> WorkerSet::start(const std::stop_token& stop) {
  const auto path = KILN_TRY(find_worker(search_));
  const ExchangeLimits limits{
      .deadline = Clock::now() + kStartLimit, .memory_bytes = 0, .stop = stop};
  auto worker = KILN_TRY(spawner_.start({path, environment()}, limits.deadline, stop));
  worker.count_in(memory_);
  const auto reply = worker.receive(limits);
  if (!reply && reply.error().code == ErrorCode::kCancelled)
    return tl::unexpected(reply.error());
  if (!reply) {
    const auto& [code, message, from_outside] = reply.error();
    return tl::unexpected(Error{
        from_outside ? code : ErrorCode::kUnavailable,
        fmt::format("{} did not start as a compile worker: {}", path.native(), message),
        from_outside});
  }
  const auto* const hello = std::get_if<Hello>(&*reply);
  if (hello == nullptr || hello->build_id != build_id()) {
    return fail(ErrorCode::kUnavailable,
                "the compile worker {} and {} come from different builds; install both "
                "from one build",
                path.native(), this_library().native());
  }
  return worker;
}

}  // namespace kiln::compile
