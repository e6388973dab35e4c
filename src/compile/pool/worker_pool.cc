#include "compile/pool/worker_pool.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "compile/pool/crash_history.h"
#include "compile/pool/output_check.h"
#include "compile/pool/worker_set.h"
#include "util/either_stop.h"
#include "util/fork_count.h"
#include "util/mutex.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// NVRTC is asked to stop at the limit; its process is killed this much later.
constexpr milliseconds kKillGrace{250};
/// A worker that holds more than 1/kRetireDivisor of the memory limit is not reused.
constexpr std::uint64_t kRetireDivisor = 4;

/// Later entries win over earlier ones of the same name.
std::vector<std::string> merged(std::vector<std::string> base,
                                const std::vector<std::string>& more) {
  for (const auto& setting : more) {
    const auto name = setting.substr(0, setting.find('=') + 1);
    std::erase_if(base, [&name](const auto& old) { return old.starts_with(name); });
    base.push_back(setting);
  }
  return base;
}

/// A request with the limits it runs under.
struct Task {
  Request request;
  WorkerSet::Libraries libraries;
  milliseconds time_limit;
  std::uint64_t memory_limit_bytes;
  Turn turn{};  // null: it waits for one, if it is a build
};

/// Outcome of a task that reached a worker: the worker's reply, or the reason why the
/// worker was killed or ended.
struct TaskResult {
  Result<Reply> answer;
};

WorkerSet::Libraries libraries_of(const NvrtcPaths& nvrtc) {
  return {nvrtc.nvrtc, nvrtc.builtins};
}
WorkerSet::Libraries libraries_of(const CompileJob& job) {
  return libraries_of(job.nvrtc);
}
WorkerSet::Libraries libraries_of(const LinkJob& job) {
  return {job.linker};
}
WorkerSet::Libraries libraries_of(const PlanJob& job) {
  return {job.cudnn, job.nvrtc.nvrtc, job.nvrtc.builtins};
}

template <typename Job>
Error with_name(const Job& job, const Error& error) {
  return {error.code, fmt::format("{}: {}", build_name(job), error.message)};
}

/// True if NVRTC itself stopped at the deadline; its worker is then still alive.
bool is_timeout(const Reply& reply) {
  const auto* const error = std::get_if<Error>(&reply);
  return error != nullptr && error->code == ErrorCode::kTimeout;
}

/// Checks the output in the reply of a live worker.
template <typename Output, typename Job>
Result<Output> checked_output(Reply reply, const Job& job) {
  if (auto* const output = std::get_if<Output>(&reply)) {
    const auto sound = check_output(job, *output);
    if (!sound)
      return tl::unexpected(with_name(job, sound.error()));
    return std::move(*output);
  }
  if (const auto* const error = std::get_if<Error>(&reply))
    return tl::unexpected(with_name(job, *error));
  return fail(ErrorCode::kWorkerCrashed,
              build_name(job) + ": the compile worker answered another question");
}

/// Sends the request and reads replies until the one that is not Progress.
Result<Reply> exchange(WorkerProcess& worker, const Bytes& frame,
                       const ExchangeLimits& limits, BuildWatch& watch) {
  KILN_TRY(worker.send(frame, limits));
  while (true) {
    auto reply = KILN_TRY(worker.receive(limits));
    const auto* const progress = std::get_if<Progress>(&reply);
    if (progress == nullptr)
      return reply;
    watch.enter(progress->phase);
  }
}

}  // namespace

std::vector<std::string> worker_environment() {
  constexpr std::array kPassed{
      // The worker's own libraries, and NVRTC's, may be there and nowhere else. It can
      // change what is loaded, which the reported build ids show.
      "LD_LIBRARY_PATH",
      // NVRTC and ptxas write temporary files, and the worker is confined to this
      // folder.
      "TMPDIR",
      // Which fault the compiler of Kiln's tests has; no other compiler reads it.
      "KILN_FAKE_NVRTC",
      // A worker that was built with a sanitizer reports as its host does; others do
      // not read these.
      "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"};
  std::vector<std::string> environment;
  for (const char* const name : kPassed) {
    // Read when a pool opens. A host that changes its environment at that moment causes
    // a data race that Kiln cannot prevent. In a set-uid program no variable is passed.
    if (const char* const value = ::secure_getenv(name))
      environment.push_back(fmt::format("{}={}", name, value));
  }
  return environment;
}

/// The state of a pool in one process; a forked child gets its own.
class WorkerPool::State {
 public:
  explicit State(const PoolOptions& options);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  template <typename Output, typename Job>
  Result<Output> build(const Job& wanted, std::stop_token stop,
                       const ProgressCallback& on_phase, const Turn& turn = nullptr);
  Result<Turn> wait_turn(const CompileJob& wanted, std::stop_token stop,
                         const ProgressCallback& on_phase);
  /// How long a question may take, and what is said around its failure.
  struct Manner {
    milliseconds limit;
    std::string about;
    std::string_view remedy{};
  };
  template <typename Description, typename Question>
  Result<Description> describe(const Question& question,
                               const WorkerSet::Libraries& libraries,
                               const Manner& manner, std::stop_token stop);

  [[nodiscard]] const OwnerProcess& owner() const { return owner_; }

 private:
  /// A call that is running in the pool; the destructor waits for it.
  class ActiveCall;
  struct HeldTurn;

  Result<TaskResult> run(const Task& task, const std::stop_token& stop,
                         BuildWatch& watch);
  Result<TaskResult> try_once(const Task& task, const Bytes& frame,
                              const std::stop_token& stop, BuildWatch& watch);
  Result<Turn> take_turn(const std::stop_token& stop);
  Result<std::unique_ptr<WorkerSet::Alone>> be_alone(HeldTurn& turn,
                                                     const std::stop_token& stop);
  template <typename Job>
  Result<void> refuse_killer(const Job& job);
  template <typename Job>
  [[nodiscard]] Job with_limits(Job job) const;

  // Constant after construction.
  const PoolOptions& options_;
  const OwnerProcess owner_{};

  // Thread-safe by themselves.
  std::stop_source closing_;
  CrashHistory crash_history_;
  WorkerSet workers_;

  Mutex mutex_;
  ConditionVariable left_;
  unsigned callers_ KILN_GUARDED_BY(mutex_) = 0;
};

class WorkerPool::State::ActiveCall {
 public:
  explicit ActiveCall(State& state) : state_(state) {
    const MutexLock lock(state_.mutex_);
    ++state_.callers_;
  }
  ActiveCall(const ActiveCall&) = delete;
  ActiveCall& operator=(const ActiveCall&) = delete;
  ~ActiveCall() {
    const MutexLock lock(state_.mutex_);
    --state_.callers_;
    state_.left_.notify_all();
  }

 private:
  State& state_;
};

WorkerPool::State::State(const PoolOptions& options)
    : options_(options),
      crash_history_(options.clock ? options.clock : CrashHistory::Clock(Clock::now)),
      workers_(options.max_workers, options.worker,
               merged(worker_environment(), options.environment), options.scratch,
               options.memory != nullptr ? *options.memory : WorkerMemory::of_process(),
               options.max_idle) {}

WorkerPool::State::~State() {
  closing_.request_stop();
  const MutexLock lock(mutex_);
  while (callers_ > 0) left_.wait(mutex_);
}

struct WorkerPool::State::HeldTurn {
  explicit HeldTurn(State& state) : active(state) {}

  const ActiveCall active;
  std::unique_ptr<WorkerSet::Permit> permit;
  std::shared_ptr<void> slot;
};

Result<Turn> WorkerPool::State::take_turn(const std::stop_token& stop) {
  auto turn = std::make_shared<HeldTurn>(*this);
  turn->permit = KILN_TRY(workers_.acquire_permit(stop));
  if (options_.acquire_slot)
    turn->slot = KILN_TRY(options_.acquire_slot(stop));
  return turn;
}

template <typename Job>
Result<void> WorkerPool::State::refuse_killer(const Job& job) {
  auto refusal = crash_history_.refusal(job);
  if (!refusal)
    return {};
  if (options_.on_refused)
    options_.on_refused();
  return tl::unexpected(*std::move(refusal));
}

template <typename Job>
Job WorkerPool::State::with_limits(Job job) const {
  if (job.time_limit.count() == 0)
    job.time_limit = options_.time_limit;
  if (job.memory_limit_bytes == 0)
    job.memory_limit_bytes = options_.memory_limit_bytes;
  return job;
}

/// Errors: the reason why no worker could be given the task.
Result<TaskResult> WorkerPool::State::run(const Task& task, const std::stop_token& stop,
                                          BuildWatch& watch) {
  const Bytes frame = encode_request(task.request);
  if (frame.size() > options_.max_job_bytes) {
    return fail(ErrorCode::kResourceLimit,
                "a compile job of {} bytes is over the limit of {}", frame.size(),
                options_.max_job_bytes);
  }
  if (task.turn == nullptr)
    watch.enter(BuildPhase::kQueued);
  // A question takes milliseconds, and must not wait for a build.
  const bool is_build = !std::holds_alternative<DescribeRequest>(task.request) &&
                        !std::holds_alternative<CudnnRequest>(task.request);
  const Turn turn =
      is_build && task.turn == nullptr ? KILN_TRY(take_turn(stop)) : task.turn;
  auto result = KILN_TRY(try_once(task, frame, stop, watch));
  if (result.answer || !result.answer.error().from_outside)
    return result;
  // Perhaps for want of memory, which the other builds of this process had taken.
  watch.enter(BuildPhase::kQueued);
  const auto alone = turn != nullptr
                         ? KILN_TRY(be_alone(*static_cast<HeldTurn*>(turn.get()), stop))
                         : nullptr;
  return try_once(task, frame, stop, watch);
}

/// Gives the slot back meanwhile: those whose builds have to end first may wait for
/// one.
Result<std::unique_ptr<WorkerSet::Alone>> WorkerPool::State::be_alone(
    HeldTurn& turn, const std::stop_token& stop) {
  turn.slot.reset();
  auto alone = KILN_TRY(workers_.be_alone(stop));
  if (options_.acquire_slot)
    turn.slot = KILN_TRY(options_.acquire_slot(stop));
  return alone;
}

Result<TaskResult> WorkerPool::State::try_once(const Task& task, const Bytes& frame,
                                               const std::stop_token& stop,
                                               BuildWatch& watch) {
  while (true) {
    auto acquired = workers_.acquire(task.libraries, stop, watch);
    if (!acquired && acquired.error().from_outside)
      return TaskResult{tl::unexpected(std::move(acquired).error())};
    auto worker = KILN_TRY(std::move(acquired));
    watch.start_clock();
    const auto time_before = worker.processor_time();
    auto answer =
        exchange(worker, frame,
                 {.deadline = watch.begin() + task.time_limit + kKillGrace,
                  .memory_bytes = task.memory_limit_bytes,
                  .stop = stop,
                  .on_memory = [&](std::uint64_t bytes) { worker.hold(bytes); }},
                 watch);
    const auto time_after = worker.processor_time();
    if (time_before && time_after)
      watch.had(*time_after - *time_before);
    const std::uint64_t resident = answer ? worker.resident_bytes() : 0;
    worker.hold(resident);
    // A process whose plans are hits needs no worker after the question about cuDNN.
    if (answer && !std::holds_alternative<CudnnRequest>(task.request) &&
        resident <= task.memory_limit_bytes / kRetireDivisor)
      workers_.release(task.libraries, std::move(worker));
    else
      worker.kill();  // before the slot is given back
    // An idle worker may be killed, for example for lack of memory, before it receives
    // this task. The next round takes another idle one, and finally a new one, whose
    // phase is kStarting.
    const bool never_began = !answer &&
                             answer.error().code == ErrorCode::kWorkerCrashed &&
                             watch.phase() == BuildPhase::kQueued;
    if (!never_began)
      return TaskResult{std::move(answer)};
  }
}

template <typename Output, typename Job>
Result<Output> WorkerPool::State::build(const Job& wanted, std::stop_token stop,
                                        const ProgressCallback& on_phase,
                                        const Turn& turn) {
  const ActiveCall active(*this);
  const EitherStop either(std::move(stop), closing_.get_token());
  const Job job = with_limits(wanted);
  KILN_TRY(refuse_killer(job));

  BuildWatch watch(on_phase);
  auto [answer] = KILN_TRY(run({.request = job,
                                .libraries = libraries_of(job),
                                .time_limit = job.time_limit,
                                .memory_limit_bytes = job.memory_limit_bytes,
                                .turn = turn},
                               either.token(), watch));
  const bool stopped_itself = answer && is_timeout(*answer);
  if (answer && !stopped_itself)
    return checked_output<Output>(*std::move(answer), job);

  const auto& cause = stopped_itself ? std::get<Error>(*answer) : answer.error();
  bool is_saved = true;
  if constexpr (std::is_same_v<Job, CompileJob>)
    is_saved = options_.saves_as_nvrtc || !job.as_nvrtc;
  auto error =
      ended_build(cause, job, watch, is_saved ? options_.reproductions : OwnFolder());
  if (!is_saved && error.code != ErrorCode::kCancelled)
    error.message += "; the build is not saved, since KILN_STORE_SOURCE is 0";
  if (error.code != ErrorCode::kCancelled && !error.from_outside)
    crash_history_.record(job, error);
  return tl::unexpected(std::move(error));
}

Result<Turn> WorkerPool::State::wait_turn(const CompileJob& wanted,
                                          std::stop_token stop,
                                          const ProgressCallback& on_phase) {
  const ActiveCall active(*this);
  const EitherStop either(std::move(stop), closing_.get_token());
  KILN_TRY(refuse_killer(with_limits(wanted)));
  if (on_phase)
    on_phase(BuildPhase::kQueued);
  return take_turn(either.token());
}

template <typename Description, typename Question>
Result<Description> WorkerPool::State::describe(const Question& question,
                                                const WorkerSet::Libraries& libraries,
                                                const Manner& manner,
                                                std::stop_token stop) {
  const ActiveCall active(*this);
  const EitherStop either(std::move(stop), closing_.get_token());
  BuildWatch watch({});
  const auto [answer] =
      KILN_TRY(run({.request = question,
                    .libraries = libraries,
                    .time_limit = manner.limit,
                    .memory_limit_bytes = options_.memory_limit_bytes},
                   either.token(), watch));
  const auto failed = [&](const Error& error) {
    return tl::unexpected(Error{
        error.code, fmt::format("{}: {}{}", manner.about, error.message, manner.remedy),
        error.from_outside});
  };
  if (!answer)
    return failed(answer.error());
  if (const auto* const error = std::get_if<Error>(&*answer))
    return failed(*error);
  if (const auto* const found = std::get_if<Description>(&*answer))
    return *found;
  return failed({ErrorCode::kWorkerCrashed, "the worker answered another question"});
}

WorkerPool::WorkerPool(PoolOptions options)
    : options_(std::move(options)), state_(new State(options_)) {}

WorkerPool::~WorkerPool() {
  State* const state = state_.load();
  // In a forked child that never compiled, the threads and workers are the parent's.
  if (state->owner().is_this())
    delete state;
}

WorkerPool::State& WorkerPool::state() {
  State* current = state_.load();
  if (current->owner().is_this())
    return *current;
  // The old state's lock may be held by a thread that does not exist here: leave it
  // alone.
  auto fresh = std::make_unique<State>(options_);
  if (state_.compare_exchange_strong(current, fresh.get()))
    return *fresh.release();
  return *current;  // another thread of this child was faster
}

Result<CompileOutput> WorkerPool::compile(const CompileJob& job, std::stop_token stop,
                                          const ProgressCallback& on_phase,
                                          const Turn& turn) {
  return state().build<CompileOutput>(job, std::move(stop), on_phase, turn);
}

Result<Turn> WorkerPool::wait_turn(const CompileJob& job, std::stop_token stop,
                                   const ProgressCallback& on_phase) {
  return state().wait_turn(job, std::move(stop), on_phase);
}

Result<CompileOutput> WorkerPool::link(const LinkJob& job, std::stop_token stop,
                                       const ProgressCallback& on_phase) {
  return state().build<CompileOutput>(job, std::move(stop), on_phase);
}

Result<PlanOutput> WorkerPool::build_plan(const PlanJob& job, std::stop_token stop,
                                          const ProgressCallback& on_phase) {
  return state().build<PlanOutput>(job, std::move(stop), on_phase);
}

Result<ToolchainDescription> WorkerPool::describe(const NvrtcPaths& nvrtc,
                                                  std::stop_token stop) {
  return state().describe<ToolchainDescription>(
      DescribeRequest{nvrtc}, libraries_of(nvrtc),
      {kDescribeLimit,
       fmt::format("asking NVRTC {} for its version", nvrtc.nvrtc.native())},
      std::move(stop));
}

Result<CudnnDescription> WorkerPool::describe(const CudnnRequest& request,
                                              std::stop_token stop) {
  return state().describe<CudnnDescription>(
      request, {request.cudnn},
      {std::min<milliseconds>(kDescribeLimit, options_.time_limit),
       fmt::format("cuDNN {} cannot be used", request.cudnn.native()),
       "; a cuDNN ends the process that calls it if it cannot load its own "
       "libcudnn_graph: install all libraries of one cuDNN in one folder, look at "
       "LD_LIBRARY_PATH, or name another cuDNN with KILN_CUDNN"},
      std::move(stop));
}

}  // namespace kiln::compile
