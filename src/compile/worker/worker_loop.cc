#include "compile/worker/worker_loop.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <tuple>

#include "compile/protocol/program_end.h"
#include "compile/protocol/protocol.h"
#include "compile/worker/compile_log.h"
#include "compile/worker/confinement.h"
#include "compile/worker/run_program.h"
#include "kiln/version.h"
#include "process/child_process.h"
#include "util/proc_file.h"
#include "util/text.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln::compile {
namespace {

using Clock = std::chrono::steady_clock;

/// An error may quote the request, its log and an exception.
constexpr std::size_t kMessageEndBytes = 2 * kTextEndBytes;

/// Ends the process without a reply, in most cases because the parent has gone.
[[noreturn]] void exit_now(int status) {
  ::_exit(status);  // no destructors: NVRTC's threads may still run
}

void send_all(const Reply& reply) {
  if (!send_to_host(encode_reply(reply)))
    exit_now(EXIT_SUCCESS);
}

void read_exactly(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::read(kWorkerSocket, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      exit_now(EXIT_SUCCESS);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

Result<Request> next_request() {
  Bytes frame(kFrameHeaderBytes);
  read_exactly(frame);
  frame.resize(KILN_TRY(frame_bytes(frame)));
  read_exactly(std::span(frame).subspan(kFrameHeaderBytes));
  return decode_request(frame);
}

Result<Reply> guarded(const Answer& answer, const Result<Request>& request) {
  if (!request)
    return tl::unexpected(request.error());
  // The one place that catches exceptions of libraries, mostly std::bad_alloc.
  try {
    return answer(*request);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kResourceLimit, "the compile worker ran out of memory");
  } catch (const std::exception& error) {
    return fail(ErrorCode::kCompileFailed, "the compile worker met an exception: {}",
                error.what());
  }
}

/// What the running request may use, and how long the next one may take to come. The
/// pool watches the same limits, unless its
/// process is stopped or gets no processor time. Thread safety: every call may run
/// concurrently.
class Limits {
 public:
  /// Does not return if this process is about to end.
  void begin(const Request& request) {
    Clock::rep idle = idle_since_.exchange(kRunning);
    while (idle == kEnding) ::pause();
    std::visit([this](const auto& job) { begin_job(job); }, request);
  }
  void end() {
    deadline_ = kNone;
    memory_bytes_ = 0;
    idle_since_ = now();
  }
  /// True once no request has come for long: then none begins any more, and the pool
  /// sends its next one to another worker.
  [[nodiscard]] bool is_unused() {
    Clock::rep idle = idle_since_;
    return idle != kRunning && now() - idle > Clock::duration(kKeptFor).count() &&
           idle_since_.compare_exchange_strong(idle, kEnding);
  }
  [[nodiscard]] bool is_running() const { return deadline_ != kNone; }
  [[nodiscard]] bool is_over_time() const { return now() > deadline_; }
  [[nodiscard]] bool is_over_memory() const {
    const std::uint64_t limit = memory_bytes_;
    return limit != 0 && resident_bytes() > limit;
  }

 private:
  static constexpr Clock::rep kNone = Clock::duration::max().count();
  static constexpr Clock::rep kRunning = kNone;
  static constexpr Clock::rep kEnding = kNone - 1;
  /// Of the memory of a worker, about 75 MB, which others may need.
  static constexpr std::chrono::seconds kKeptFor{30};
  /// The pool is first, if it can: it knows more about the build.
  static constexpr std::chrono::seconds kGrace{1};

  template <typename Job>
  void begin_job(const Job& job) {
    memory_bytes_ = job.memory_limit_bytes;
    if (job.time_limit.count() != 0)
      set_deadline(job.time_limit);
  }
  void begin_job(const DescribeRequest& /*request*/) { set_deadline(kDescribeLimit); }
  void begin_job(const CudnnRequest& /*request*/) { set_deadline(kDescribeLimit); }
  void set_deadline(std::chrono::milliseconds limit) {
    deadline_ = (Clock::now() + limit + kGrace).time_since_epoch().count();
  }

  /// Where there is no /proc, the heap alone. Not by open(): the worker's own records
  /// what the compiler opens.
  static std::uint64_t resident_bytes() {
    const UniqueFd file(static_cast<int>(
        ::syscall(SYS_openat, AT_FDCWD, "/proc/self/statm", O_RDONLY | O_CLOEXEC)));
    std::array<char, 128> text{};
    const ssize_t n = ::read(file.get(), text.data(), text.size());
    if (n > 0)
      return resident_bytes_in({text.data(), static_cast<std::size_t>(n)});
    const auto heap = ::mallinfo2();
    return heap.uordblks + heap.hblkhd;
  }

  static Clock::rep now() { return Clock::now().time_since_epoch().count(); }

  std::atomic<Clock::rep> idle_since_ = now();
  std::atomic<Clock::rep> deadline_ = kNone;
  std::atomic<std::uint64_t> memory_bytes_ = 0;
};

/// Ends this process when the pool's process ends, also in the middle of a compile, and
/// over a limit. A forked child of the host may keep the socket open, hence the
/// getppid() check.
void watch(pid_t parent, Limits& limits) {
  constexpr int kAskEveryMs = 500;
  constexpr int kAskRunningEveryMs = 100;
  while (true) {
    pollfd socket{.fd = kWorkerSocket, .events = POLLRDHUP, .revents = 0};
    const int ready =
        ::poll(&socket, 1, limits.is_running() ? kAskRunningEveryMs : kAskEveryMs);
    if (ready > 0 || ::getppid() != parent || limits.is_unused())
      exit_now(EXIT_SUCCESS);
    if (limits.is_over_time())
      exit_now(kExitOverTime);
    if (limits.is_over_memory())
      exit_now(kExitOverMemory);
  }
}

/// NVRTC segfaults on a stack of 64 KiB, and so would its threads.
constexpr std::size_t kLeastStackBytes = 8U << 20U;

/// True if the host's `ulimit -s` is below that. Then all threads that this process
/// starts have so much, which needs no permission; its first one cannot get it.
bool has_small_stack() {
  rlimit stack{};
  if (::getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= kLeastStackBytes)
    return false;
  pthread_attr_t attributes{};
  return ::pthread_getattr_default_np(&attributes) == 0 &&
         ::pthread_attr_setstacksize(&attributes, kLeastStackBytes) == 0 &&
         ::pthread_setattr_default_np(&attributes) == 0;
}

[[noreturn]] void answer_all(const Answer& answer, Limits& limits) {
  send_all(Hello{build_id()});
  while (true) {
    const auto request = next_request();
    if (request)
      limits.begin(*request);
    auto reply = guarded(answer, request);
    limits.end();
    const auto* const job = request ? std::get_if<CompileJob>(&*request) : nullptr;
    if (!reply && (job == nullptr || !job->as_nvrtc)) {
      Error& error = reply.error();
      error.message = shortened(std::move(error.message), kMessageEndBytes);
    }
    send_all(reply ? *std::move(reply) : Reply(std::move(reply).error()));
  }
}

[[noreturn]] void serve(pid_t parent, const Answer& answer) {
  // Fires when the pool's spawning thread ends. The parent may be gone already.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent)
    exit_now(EXIT_SUCCESS);
  const rlimit no_core{};
  // A core dump of a compiler with a 256 MB heap helps nobody. If this call fails, one
  // is written.
  std::ignore = ::setrlimit(RLIMIT_CORE, &no_core);
  // Relative paths must not depend on the directory in which the worker started.
  if (::chdir("/") != 0)
    exit_now(EXIT_FAILURE);
  if (const auto confined = confine_process(); !confined) {
    fmt::print(stderr, "{}\n", confined.error().message);  // the pool quotes it
    exit_now(EXIT_FAILURE);
  }
  static Limits limits;  // the thread uses them until the process ends
  const bool needs_thread = has_small_stack();
  std::thread([parent] { watch(parent, limits); }).detach();
  if (needs_thread)
    std::thread([&answer] { answer_all(answer, limits); }).join();
  answer_all(answer, limits);
}

/// What a worker does that is started to see whether a mount answers: the calls that a
/// dead mount would hold, whatever they give.
void probe_mount(const char* mount, const char* place) {
  struct statfs info {};
  std::ignore = ::statfs(mount, &info);  // no kernel answers this from memory
  const UniqueFd file(::open(place, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat found {};
  if (!file || ::fstat(file.get(), &found) != 0)
    return;
  char byte = 0;
  if (S_ISREG(found.st_mode))
    std::ignore = ::pread(file.get(), &byte, 1, 0);
  else if (DIR* const folder = S_ISDIR(found.st_mode) ? ::opendir(place) : nullptr) {
    std::ignore = ::readdir(folder);  // NOLINT(concurrency-mt-unsafe): its own DIR
    ::closedir(folder);
  }
}

}  // namespace

void report_phase(BuildPhase phase) {
  send_all(Progress{phase});
}

int run_worker(std::string_view name, std::span<char*> arguments,
               const Answer& answer) {
  if (arguments.size() == 2 && std::string_view(arguments[1]) == "--version") {
    fmt::print("{} {}, build {}\n", name, version(), build_id());
    return EXIT_SUCCESS;
  }
  constexpr std::size_t kWithProbe = 6;
  const bool probes = arguments.size() == kWithProbe && arguments[3] == kProbeArgument;
  const bool runs = arguments.size() > kWithProbe + 1 && arguments[3] == kRunArgument;
  const auto parent = (probes || runs || arguments.size() == 3) &&
                              std::string_view(arguments[1]) == "--parent"
                          ? number_of<pid_t>(arguments[2])
                          : std::nullopt;
  if (!parent) {
    fmt::print(stderr, "{} is started by Kiln itself; see 'kiln --help'\n", name);
    return 2;
  }
  if (runs)
    run_program(
        *parent,
        std::chrono::milliseconds(number_of<std::int64_t>(arguments[4]).value_or(0)),
        arguments[5], arguments[6], arguments.subspan(kWithProbe + 1));
  if (probes) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == *parent)
      probe_mount(arguments[4], arguments[5]);
    exit_now(EXIT_SUCCESS);
  }
  serve(*parent, answer);
}

}  // namespace kiln::compile
