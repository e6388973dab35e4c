#include "compile/worker_pool.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "compile/cores.h"
#include "compile/output_check.h"
#include "compile/repeat_killers.h"
#include "compile/reproduction.h"
#include "compile/spawner.h"
#include "compile/worker_process.h"
#include "kiln/version.h"
#include "util/mutex.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kStartLimit{30};
constexpr std::chrono::seconds kDescribeLimit{60};
/// NVRTC is asked to stop at the limit; this later its process is killed.
constexpr milliseconds kPoliteness{250};
/// A worker that keeps more than this part of a build's memory limit is not reused.
constexpr std::uint64_t kRetireAtPart = 4;

/// Stops when either of two tokens does. Thread safety: as stop_token.
class EitherStop {
 public:
  EitherStop(std::stop_token first, std::stop_token second)
      : first_(std::move(first), [this] { source_.request_stop(); }),
        second_(std::move(second), [this] { source_.request_stop(); }) {}

  [[nodiscard]] std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  std::stop_callback<std::function<void()>> first_;
  std::stop_callback<std::function<void()>> second_;
};

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

std::string seconds_text(milliseconds duration) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(duration).count());
}

/// What a build is doing and since when; its caller hears of each phase.
class BuildWatch {
 public:
  explicit BuildWatch(const ProgressCallback& on_phase) : on_phase_(on_phase) {}

  void enter(BuildPhase phase) {
    phase_ = phase;
    if (on_phase_)
      on_phase_(phase);
  }
  void restart() { begin_ = Clock::now(); }

  [[nodiscard]] BuildPhase phase() const { return phase_; }
  [[nodiscard]] Clock::time_point begin() const { return begin_; }
  [[nodiscard]] milliseconds elapsed() const {
    return std::chrono::duration_cast<milliseconds>(Clock::now() - begin_);
  }

 private:
  const ProgressCallback& on_phase_;
  BuildPhase phase_ = BuildPhase::kQueued;
  Clock::time_point begin_ = Clock::now();
};

/// A request with the limits it runs under.
struct Errand {
  Request request;
  NvrtcPaths nvrtc;
  milliseconds time_limit;
  std::uint64_t memory_limit_bytes;
};

/// How an errand ended: the worker's own word or, when the worker had to be given up,
/// why.
struct Ended {
  Result<Reply> answer;
};

Errand errand_of(const CompileJob& job) {
  return {.request = job,
          .nvrtc = job.nvrtc,
          .time_limit = job.time_limit,
          .memory_limit_bytes = job.memory_limit_bytes};
}

std::string build_name(const CompileJob& job) {
  return fmt::format("the build of {} for {}",
                     job.label.empty() ? kProgramName : job.label,
                     device::to_string(job.target));
}

Error about(const CompileJob& job, const Error& error) {
  return {error.code, fmt::format("{}: {}", build_name(job), error.message)};
}

/// NVRTC heeded the deadline by itself, and its worker lives.
bool is_timeout(const Reply& reply) {
  const auto* const error = std::get_if<Error>(&reply);
  return error != nullptr && error->code == ErrorCode::kTimeout;
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
  constexpr std::array kPassed{"LD_LIBRARY_PATH", "TMPDIR",        "KILN_FAKE_NVRTC",
                               "ASAN_OPTIONS",    "UBSAN_OPTIONS", "TSAN_OPTIONS"};
  std::vector<std::string> environment;
  for (const char* const name : kPassed) {
    if (const char* const value = std::getenv(name))
      environment.push_back(fmt::format("{}={}", name, value));
  }
  return environment;
}

/// All that a pool has in one process.
class WorkerPool::State {
 public:
  explicit State(const PoolOptions& options);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  State(State&&) = delete;
  State& operator=(State&&) = delete;
  ~State();

  Result<CompileOutput> compile(const CompileJob& job, std::stop_token stop,
                                const ProgressCallback& on_phase);
  Result<ToolchainDescription> describe(const NvrtcPaths& nvrtc, std::stop_token stop);

  [[nodiscard]] pid_t owner() const { return owner_; }
  [[nodiscard]] unsigned max_workers() const { return max_workers_; }

 private:
  struct Idle {
    NvrtcPaths nvrtc;
    WorkerProcess process;
  };
  /// One of max_workers_ places, given back by its destructor.
  class Place;
  /// One caller inside the pool; the destructor waits for it.
  class Visit;

  static Result<CompileOutput> judge(Reply reply, const CompileJob& job);
  Result<Ended> run(const Errand& errand, const std::stop_token& stop,
                    BuildWatch& watch);
  Result<std::unique_ptr<Place>> take_place(const std::stop_token& stop);
  Result<std::shared_ptr<void>> take_slot(const std::stop_token& stop) const;
  Result<WorkerProcess> take_worker(const NvrtcPaths& nvrtc,
                                    const std::stop_token& stop, BuildWatch& watch);
  std::optional<WorkerProcess> take_idle(const NvrtcPaths& nvrtc);
  Result<WorkerProcess> start_worker(const std::stop_token& stop);
  void keep(const Errand& errand, WorkerProcess worker);
  Error explain(const Error& error, const CompileJob& job,
                const BuildWatch& watch) const;
  [[nodiscard]] CompileJob with_limits(CompileJob job) const;

  // Constant after construction.
  const PoolOptions& options_;
  const std::vector<std::string> environment_;
  const unsigned max_workers_;
  const pid_t owner_ = ::getpid();

  // Thread-safe by themselves.
  std::stop_source closing_;
  RepeatKillers killers_;
  Spawner spawner_;  // outlives every worker below

  Mutex mutex_;
  ConditionVariable changed_;
  unsigned callers_ KILN_GUARDED_BY(mutex_) = 0;  // inside compile() or describe()
  unsigned busy_ KILN_GUARDED_BY(mutex_) = 0;     // places taken
  std::vector<Idle> idle_ KILN_GUARDED_BY(mutex_);
};

class WorkerPool::State::Place {
 public:
  explicit Place(State& state) : state_(state) {}
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  Place(Place&&) = delete;
  Place& operator=(Place&&) = delete;
  ~Place() {
    const MutexLock lock(state_.mutex_);
    --state_.busy_;
    state_.changed_.notify_all();
  }

 private:
  State& state_;
};

class WorkerPool::State::Visit {
 public:
  explicit Visit(State& state) : state_(state) {
    const MutexLock lock(state_.mutex_);
    ++state_.callers_;
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  Visit(Visit&&) = delete;
  Visit& operator=(Visit&&) = delete;
  ~Visit() {
    const MutexLock lock(state_.mutex_);
    --state_.callers_;
    state_.changed_.notify_all();
  }

 private:
  State& state_;
};

WorkerPool::State::State(const PoolOptions& options)
    : options_(options),
      environment_(merged(worker_environment(), options.environment)),
      max_workers_(options.max_workers == 0 ? usable_cores() : options.max_workers),
      killers_(options.clock ? options.clock : RepeatKillers::Clock(Clock::now)) {}

WorkerPool::State::~State() {
  closing_.request_stop();
  std::vector<Idle> idle;
  {
    const MutexLock lock(mutex_);
    while (callers_ > 0) changed_.wait(mutex_);
    idle = std::move(idle_);
  }
}

Result<std::unique_ptr<WorkerPool::State::Place>> WorkerPool::State::take_place(
    const std::stop_token& stop) {
  // Declared before the lock: its destructor may have to wait for the callback.
  const std::stop_callback wake(stop, [this] {
    const MutexLock lock(mutex_);
    changed_.notify_all();
  });
  const MutexLock lock(mutex_);
  while (busy_ >= max_workers_ && !stop.stop_requested()) changed_.wait(mutex_);
  if (stop.stop_requested())
    return fail(ErrorCode::kCancelled, "cancelled while queued for a compile worker");
  ++busy_;
  return std::make_unique<Place>(*this);
}

Result<std::shared_ptr<void>> WorkerPool::State::take_slot(
    const std::stop_token& stop) const {
  if (!options_.acquire_slot)
    return nullptr;
  return options_.acquire_slot(stop);
}

std::optional<WorkerProcess> WorkerPool::State::take_idle(const NvrtcPaths& nvrtc) {
  std::vector<Idle> ended;  // destroyed after the lock: reaping takes time
  const MutexLock lock(mutex_);
  std::optional<WorkerProcess> found;
  for (std::size_t i = idle_.size(); i-- > 0 && !found;) {
    const auto at = idle_.begin() + static_cast<std::ptrdiff_t>(i);
    if (!at->process.alive()) {
      ended.push_back(std::move(*at));
      idle_.erase(at);
    } else if (at->nvrtc == nvrtc) {
      found = std::move(at->process);
      idle_.erase(at);
    }
  }
  // Workers of other NVRTCs make room: no more than max_workers_ live at a time.
  if (!found && !idle_.empty() && busy_ + idle_.size() > max_workers_) {
    ended.push_back(std::move(idle_.front()));
    idle_.erase(idle_.begin());
  }
  return found;
}

Result<WorkerProcess> WorkerPool::State::start_worker(const std::stop_token& stop) {
  const auto path = KILN_TRY(find_worker(options_.worker));
  const ExchangeLimits limits{
      .deadline = Clock::now() + kStartLimit, .memory_bytes = 0, .stop = stop};
  auto worker = KILN_TRY(spawner_.start({path, environment_}, limits.deadline, stop));
  const auto reply = worker.receive(limits);
  if (!reply && reply.error().code == ErrorCode::kCancelled)
    return tl::unexpected(reply.error());
  if (!reply) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} did not start as a compile worker: {}", path.native(),
                            reply.error().message));
  }
  const auto* const hello = std::get_if<Hello>(&*reply);
  if (hello == nullptr || hello->build_id != build_id()) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("the compile worker {} and {} come from different builds; "
                            "install both from one",
                            path.native(), this_library().native()));
  }
  return worker;
}

Result<WorkerProcess> WorkerPool::State::take_worker(const NvrtcPaths& nvrtc,
                                                     const std::stop_token& stop,
                                                     BuildWatch& watch) {
  if (auto idle = take_idle(nvrtc))
    return *std::move(idle);
  watch.enter(BuildPhase::kStarting);
  return start_worker(stop);
}

void WorkerPool::State::keep(const Errand& errand, WorkerProcess worker) {
  if (worker.resident_bytes() > errand.memory_limit_bytes / kRetireAtPart)
    return;
  const MutexLock lock(mutex_);
  idle_.push_back({errand.nvrtc, std::move(worker)});
}

/// Errors: what kept the errand from being handed to a worker at all.
Result<Ended> WorkerPool::State::run(const Errand& errand, const std::stop_token& stop,
                                     BuildWatch& watch) {
  const Bytes frame = encode_request(errand.request);
  if (frame.size() > kMaxPayloadBytes) {
    return fail(ErrorCode::kResourceLimit,
                fmt::format("a compile job of {} bytes is over the limit of {}",
                            frame.size(), kMaxPayloadBytes));
  }
  watch.enter(BuildPhase::kQueued);
  const auto place = KILN_TRY(take_place(stop));
  const auto slot = KILN_TRY(take_slot(stop));
  auto worker = KILN_TRY(take_worker(errand.nvrtc, stop, watch));

  watch.restart();
  auto answer = exchange(worker, frame,
                         {.deadline = watch.begin() + errand.time_limit + kPoliteness,
                          .memory_bytes = errand.memory_limit_bytes,
                          .stop = stop},
                         watch);
  if (answer) {
    keep(errand, std::move(worker));
  } else {
    worker.kill();  // before the slot is given back
  }
  return Ended{std::move(answer)};
}

CompileJob WorkerPool::State::with_limits(CompileJob job) const {
  if (job.time_limit.count() == 0)
    job.time_limit = options_.time_limit;
  if (job.memory_limit_bytes == 0)
    job.memory_limit_bytes = options_.memory_limit_bytes;
  return job;
}

/// The error of a build that was stopped or crashed, in the words of its caller.
Error WorkerPool::State::explain(const Error& error, const CompileJob& job,
                                 const BuildWatch& watch) const {
  const auto build = build_name(job);
  if (error.code == ErrorCode::kCancelled)
    return {error.code,
            fmt::format("{} was cancelled while {}", build, to_string(watch.phase()))};
  std::string what;
  auto code = error.code;
  if (code == ErrorCode::kTimeout) {
    what = fmt::format(
        "was stopped after {} while {}: over its limit of {}; raise the "
        "limit or simplify the source",
        seconds_text(watch.elapsed()), to_string(watch.phase()),
        seconds_text(job.time_limit));
  } else if (code == ErrorCode::kResourceLimit) {
    what = fmt::format(
        "was stopped after {} while {}: over its memory limit of {} MiB; "
        "raise the limit or simplify the source",
        seconds_text(watch.elapsed()), to_string(watch.phase()),
        job.memory_limit_bytes >> 20U);
  } else {
    code = ErrorCode::kWorkerCrashed;
    what = fmt::format("failed after {} while {}: {}", seconds_text(watch.elapsed()),
                       to_string(watch.phase()), error.message);
  }
  if (options_.reproduction_root.empty())
    return {code, fmt::format("{} {}", build, what)};
  const auto saved = save_reproduction(options_.reproduction_root, job);
  return {code, fmt::format("{} {}; {}", build, what,
                            saved ? "saved in " + saved->native()
                                  : "it could not be saved: " + saved.error().message)};
}

/// What a worker that lives on made of the job.
Result<CompileOutput> WorkerPool::State::judge(Reply reply, const CompileJob& job) {
  if (auto* const output = std::get_if<CompileOutput>(&reply)) {
    const auto sound = check_output(job, *output);
    if (!sound)
      return tl::unexpected(about(job, sound.error()));
    return std::move(*output);
  }
  if (const auto* const error = std::get_if<Error>(&reply))
    return tl::unexpected(about(job, *error));
  return fail(
      ErrorCode::kWorkerCrashed,
      fmt::format("{}: the compile worker answered another question", build_name(job)));
}

Result<CompileOutput> WorkerPool::State::compile(const CompileJob& wanted,
                                                 std::stop_token stop,
                                                 const ProgressCallback& on_phase) {
  const Visit visit(*this);
  const EitherStop either(std::move(stop), closing_.get_token());
  const CompileJob job = with_limits(wanted);
  if (auto refusal = killers_.refusal(job))
    return tl::unexpected(*std::move(refusal));

  BuildWatch watch(on_phase);
  auto ended = KILN_TRY(run(errand_of(job), either.token(), watch));
  const bool stopped_itself = ended.answer && is_timeout(*ended.answer);
  if (ended.answer && !stopped_itself)
    return judge(*std::move(ended.answer), job);

  const auto error =
      explain(stopped_itself ? std::get<Error>(*ended.answer) : ended.answer.error(),
              job, watch);
  if (error.code != ErrorCode::kCancelled)
    killers_.record(job, error);
  return tl::unexpected(error);
}

Result<ToolchainDescription> WorkerPool::State::describe(const NvrtcPaths& nvrtc,
                                                         std::stop_token stop) {
  const Visit visit(*this);
  const EitherStop either(std::move(stop), closing_.get_token());
  BuildWatch watch({});
  const auto ended = KILN_TRY(run({.request = DescribeRequest{nvrtc},
                                   .nvrtc = nvrtc,
                                   .time_limit = kDescribeLimit,
                                   .memory_limit_bytes = options_.memory_limit_bytes},
                                  either.token(), watch));
  const auto about_nvrtc = [&nvrtc](const Error& error) {
    return fail(error.code, fmt::format("asking NVRTC {} what it is: {}",
                                        nvrtc.nvrtc.native(), error.message));
  };
  if (!ended.answer)
    return about_nvrtc(ended.answer.error());
  if (const auto* const error = std::get_if<Error>(&*ended.answer))
    return about_nvrtc(*error);
  if (const auto* const found = std::get_if<ToolchainDescription>(&*ended.answer))
    return *found;
  return about_nvrtc(
      {ErrorCode::kWorkerCrashed, "the worker answered another question"});
}

WorkerPool::WorkerPool(PoolOptions options)
    : options_(std::move(options)), state_(new State(options_)) {}

WorkerPool::~WorkerPool() {
  State* const state = state_.load();
  // In a forked child that never compiled, the threads and workers are the parent's.
  if (state->owner() == ::getpid())
    delete state;
}

WorkerPool::State& WorkerPool::state() {
  State* current = state_.load();
  if (current->owner() == ::getpid())
    return *current;
  // The old state may be locked by a thread that does not exist here: it is left alone.
  auto fresh = std::make_unique<State>(options_);
  if (state_.compare_exchange_strong(current, fresh.get()))
    return *fresh.release();
  return *current;  // another thread of this child was faster
}

Result<CompileOutput> WorkerPool::compile(const CompileJob& job, std::stop_token stop,
                                          const ProgressCallback& on_phase) {
  return state().compile(job, std::move(stop), on_phase);
}

Result<ToolchainDescription> WorkerPool::describe(const NvrtcPaths& nvrtc,
                                                  std::stop_token stop) {
  return state().describe(nvrtc, std::move(stop));
}

unsigned WorkerPool::max_workers() const {
  return state_.load()->max_workers();
}

}  // namespace kiln::compile
