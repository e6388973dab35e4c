#include "compile/worker/worker_loop.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <thread>

#include "compile/protocol/protocol.h"
#include "compile/worker/confinement.h"
#include "kiln/version.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

using Clock = std::chrono::steady_clock;

/// Ends the process without a reply, in most cases because the parent has gone.
[[noreturn]] void exit_now(int status) {
  ::_exit(status);  // no destructors: NVRTC's threads may still run
}

void send_all(const Reply& reply) {
  const Bytes frame = encode_reply(reply);
  for (ByteView rest = frame; !rest.empty();) {
    const ssize_t n = ::send(kWorkerSocket, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      exit_now(EXIT_SUCCESS);
    rest = rest.subspan(static_cast<std::size_t>(n));
  }
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
    return fail(ErrorCode::kCompileFailed,
                fmt::format("the compile worker met an exception: {}", error.what()));
  }
}

/// Ends this process when the pool's process ends, even during a compile. A forked
/// child of the host may keep the socket open, hence the getppid() check.
void watch_parent(pid_t parent) {
  constexpr int kAskEveryMs = 500;
  while (true) {
    pollfd socket{.fd = kWorkerSocket, .events = POLLRDHUP, .revents = 0};
    const int ready = ::poll(&socket, 1, kAskEveryMs);
    if (ready > 0 || ::getppid() != parent)
      exit_now(EXIT_SUCCESS);
  }
}

std::optional<pid_t> parse_pid(std::string_view text) {
  pid_t pid = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc{} || end != text.data() + text.size())
    return std::nullopt;
  return pid;
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
  std::thread(watch_parent, parent).detach();

  send_all(Hello{build_id()});
  while (true) {
    auto reply = guarded(answer, next_request());
    send_all(reply ? *std::move(reply) : Reply(std::move(reply).error()));
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
  const auto parent =
      arguments.size() == 3 && std::string_view(arguments[1]) == "--parent"
          ? parse_pid(arguments[2])
          : std::nullopt;
  if (!parent) {
    fmt::print(stderr, "{} is started by Kiln itself; see 'kiln --help'\n", name);
    return 2;
  }
  serve(*parent, answer);
}

}  // namespace kiln::compile
