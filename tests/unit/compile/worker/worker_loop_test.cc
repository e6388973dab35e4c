// A worker as its pool meets it: a child of this process that runs the loop on one end
// of a socket, with answers of the test's own.

#include "compile/worker/worker_loop.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kiln/version.h"
#include "process/child_process.h"
#include "util/little_endian.h"
#include "util/unique_fd.h"

namespace kiln::compile {
namespace {

/// Runs until its socket is closed.
class LoopInChild {
 public:
  explicit LoopInChild(const Answer& answer, pid_t parent = ::getpid()) {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    socket_ = UniqueFd(ends[0]);
    const UniqueFd theirs(ends[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      // Ours first: its number may be the one that the worker's is to have.
      ::close(ends[0]);
      ::dup2(ends[1], kWorkerSocket);
      if (ends[1] != kWorkerSocket)
        ::close(ends[1]);
      std::string option = "--parent";
      std::string number = std::to_string(parent);
      std::string name = "worker";
      std::array<char*, 3> arguments{name.data(), option.data(), number.data()};
      ::_exit(run_worker(name, arguments, answer));
    }
  }
  LoopInChild(const LoopInChild&) = delete;
  LoopInChild& operator=(const LoopInChild&) = delete;
  ~LoopInChild() {
    hang_up();
    if (pid_ != -1) {
      EXPECT_EQ(exit_status(), 0) << "the pool is gone, and that is all";
    }
  }

  /// Waits for its end.
  int exit_status() {
    int status = -1;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  void send(ByteView bytes) {
    EXPECT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void send(const Request& request) { send(encode_request(request)); }

  void hang_up() { socket_ = {}; }

  /// The next reply; an Error where there is none.
  Reply next() {
    Bytes frame(kFrameHeaderBytes);
    if (!receive(frame))
      return Error{ErrorCode::kIo, "the socket was closed"};
    const std::size_t size = frame_bytes(frame).value();
    Bytes rest(size - kFrameHeaderBytes);
    EXPECT_TRUE(receive(rest));
    append(frame, rest);
    return decode_reply(frame).value();
  }

 private:
  bool receive(std::span<std::byte> bytes) {
    const ssize_t n = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_WAITALL);
    return n == static_cast<ssize_t>(bytes.size());
  }

  UniqueFd socket_;
  pid_t pid_ = -1;
};

Result<Reply> nothing(const Request& /*request*/) {
  return fail(ErrorCode::kNotFound, "nobody asked");
}

bool is_hello(const Reply& reply) {
  const auto* const hello = std::get_if<Hello>(&reply);
  return hello != nullptr && hello->build_id == build_id();
}

bool is_phase(const Reply& reply, BuildPhase phase) {
  const auto* const progress = std::get_if<Progress>(&reply);
  return progress != nullptr && progress->phase == phase;
}

Error error_of_reply(const Reply& reply) {
  const auto* const error = std::get_if<Error>(&reply);
  return error == nullptr ? Error{ErrorCode::kIo, "it is no error"} : *error;
}

TEST(WorkerLoop, SaysWhoItIsAndAnswersOneRequestAfterAnother) {
  LoopInChild worker([](const Request& request) -> Result<Reply> {
    report_phase(BuildPhase::kOpening);
    ToolchainDescription description;
    description.nvrtc.path = std::get<DescribeRequest>(request).nvrtc.nvrtc;
    return description;
  });
  EXPECT_TRUE(is_hello(worker.next()));
  for (const char* const path : {"/first", "/second"}) {
    worker.send(DescribeRequest{{path, ""}});
    EXPECT_TRUE(is_phase(worker.next(), BuildPhase::kOpening));
    const Reply reply = worker.next();
    const auto* const description = std::get_if<ToolchainDescription>(&reply);
    ASSERT_NE(description, nullptr);
    EXPECT_EQ(description->nvrtc.path, path);
  }
}

TEST(WorkerLoop, ARequestThatCameInTwoPiecesIsOne) {
  LoopInChild worker([](const Request& request) -> Result<Reply> {
    return Error{ErrorCode::kCompileFailed, std::get<CompileJob>(request).source};
  });
  EXPECT_TRUE(is_hello(worker.next()));
  CompileJob job;
  job.source = "the source";
  const Bytes frame = encode_request(job);
  worker.send(ByteView(frame).first(30));
  worker.send(ByteView(frame).subspan(30));
  EXPECT_EQ(error_of_reply(worker.next()).message, "the source");
}

TEST(WorkerLoop, AnErrorIsAReplyAndSoIsAnException) {
  int asked = 0;
  LoopInChild worker([&asked](const Request&) -> Result<Reply> {
    switch (++asked) {
      case 1:
        return fail(ErrorCode::kUnavailable, "no such NVRTC");
      case 2:
        throw std::bad_alloc();
      default:
        throw std::runtime_error("what it met");
    }
  });
  EXPECT_TRUE(is_hello(worker.next()));
  const auto next_error = [&] {
    worker.send(DescribeRequest{});
    return error_of_reply(worker.next());
  };
  const Error refused = next_error();
  EXPECT_EQ(refused.code, ErrorCode::kUnavailable);
  EXPECT_EQ(refused.message, "no such NVRTC");
  EXPECT_EQ(next_error().code, ErrorCode::kResourceLimit);
  const Error met = next_error();
  EXPECT_EQ(met.code, ErrorCode::kCompileFailed);
  EXPECT_EQ(met.message, "the compile worker met an exception: what it met");
}

TEST(WorkerLoop, NoErrorIsLongerThanAMebibyteOrSo) {
  LoopInChild worker([](const Request&) -> Result<Reply> {
    return fail(ErrorCode::kCompileFailed,
                "first" + std::string(9U << 20U, 'x') + "last");
  });
  EXPECT_TRUE(is_hello(worker.next()));
  worker.send(DescribeRequest{});
  const Error error = error_of_reply(worker.next());
  EXPECT_LT(error.message.size(), 1100U << 10U);
  EXPECT_TRUE(error.message.starts_with("first"));
  EXPECT_TRUE(error.message.ends_with("last"));
}

TEST(WorkerLoop, ADamagedRequestIsAnErrorAndTheNextIsAnswered) {
  LoopInChild worker(nothing);
  EXPECT_TRUE(is_hello(worker.next()));
  Bytes frame = encode_request(CompileJob{});
  frame.back() ^= std::byte{1};
  worker.send(frame);
  EXPECT_EQ(error_of_reply(worker.next()).code, ErrorCode::kCorrupt);
  worker.send(DescribeRequest{});
  EXPECT_EQ(error_of_reply(worker.next()).message, "nobody asked");
}

TEST(WorkerLoop, ItEndsWithItsPoolAlsoInTheMiddleOfABuild) {
  LoopInChild worker([](const Request&) -> Result<Reply> {
    report_phase(BuildPhase::kCompiling);
    ::pause();
    return fail(ErrorCode::kIo, "not reached");
  });
  EXPECT_TRUE(is_hello(worker.next()));
  worker.send(DescribeRequest{});
  EXPECT_TRUE(is_phase(worker.next(), BuildPhase::kCompiling));
  worker.hang_up();
  EXPECT_EQ(worker.exit_status(), 0);
}

/// Nobody watches these workers: the pool's process could be stopped.
TEST(WorkerLoop, ItEndsItselfOverItsTimeLimit) {
  LoopInChild worker([](const Request&) -> Result<Reply> {
    ::pause();
    return fail(ErrorCode::kIo, "not reached");
  });
  EXPECT_TRUE(is_hello(worker.next()));
  CompileJob job;
  job.time_limit = std::chrono::milliseconds(100);
  worker.send(job);
  EXPECT_EQ(worker.exit_status(), kExitOverTime);
}

TEST(WorkerLoop, ItEndsItselfOverItsMemoryLimit) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's shadow is memory, too";
#endif
  LoopInChild worker([](const Request&) -> Result<Reply> {
    std::vector<Bytes> hoard;
    for (int mib = 0; mib < 128; ++mib) hoard.emplace_back(1U << 20U, std::byte{1});
    ::pause();
    return fail(ErrorCode::kIo, "not reached");
  });
  EXPECT_TRUE(is_hello(worker.next()));
  CompileJob job;
  job.time_limit = std::chrono::seconds(60);
  job.memory_limit_bytes = 100U << 20U;
  worker.send(job);
  EXPECT_EQ(worker.exit_status(), kExitOverMemory);
}

TEST(WorkerLoop, TheLimitsOfOneBuildDoNotEndTheNext) {
  int asked = 0;
  LoopInChild worker([&asked](const Request&) -> Result<Reply> {
    if (++asked == 2)
      ::usleep(2'000'000);
    return fail(ErrorCode::kNotFound, "nobody asked");
  });
  EXPECT_TRUE(is_hello(worker.next()));
  CompileJob job;
  job.time_limit = std::chrono::milliseconds(1);
  worker.send(job);
  EXPECT_EQ(error_of_reply(worker.next()).message, "nobody asked");
  job.time_limit = std::chrono::seconds(60);
  worker.send(job);
  EXPECT_EQ(error_of_reply(worker.next()).message, "nobody asked");
}

TEST(WorkerLoop, ItServesNobodyButTheProcessThatStartedIt) {
  LoopInChild worker(nothing, ::getppid());
  EXPECT_EQ(error_of_reply(worker.next()).message, "the socket was closed");
  EXPECT_EQ(worker.exit_status(), 0);
}

TEST(WorkerLoop, ItIsNoProgramForPeople) {
  const auto run = [](std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int status = run_worker("a-worker", arguments, nothing);
    return std::to_string(status) + testing::internal::GetCapturedStdout() +
           testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(run({"w", "--version"}),
            fmt::format("0a-worker {}, build {}\n", version(), build_id()));
  const std::string refusal =
      "2a-worker is started by Kiln itself; see 'kiln --help'\n";
  EXPECT_EQ(run({"w"}), refusal);
  EXPECT_EQ(run({"w", "--parent"}), refusal);
  EXPECT_EQ(run({"w", "--parent", "12x"}), refusal);
  EXPECT_EQ(run({"w", "--parent", ""}), refusal);
  EXPECT_EQ(run({"w", "--other", "12"}), refusal);
}

}  // namespace
}  // namespace kiln::compile
