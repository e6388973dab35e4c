// The thread that starts workers, while the machine keeps it waiting.

#include "compile/pool/spawner.h"

#include <fcntl.h>

#include <csignal>
#include <optional>

#include "tests/support/is_error.h"
#include "tests/support/test.h"
#include "tests/unit/compile/pool/scripted_worker.h"
#include "util/unique_fd.h"

namespace kiln::compile {
namespace {

/// Until it is destroyed, whoever executes that file waits: the kernel asks the holder
/// of a lease first. Source: fcntl(2), F_SETLEASE.
class HeldFile {
 public:
  explicit HeldFile(const std::filesystem::path& path)
      : before_(::signal(SIGIO, SIG_IGN)),
        file_(::open(path.c_str(), O_RDWR | O_CLOEXEC)),
        is_held_(::fcntl(file_.get(), F_SETLEASE, F_WRLCK) == 0) {}
  HeldFile(const HeldFile&) = delete;
  HeldFile& operator=(const HeldFile&) = delete;
  ~HeldFile() {
    if (is_held_)
      ::fcntl(file_.get(), F_SETLEASE, F_UNLCK);
    ::signal(SIGIO, before_);
  }
  [[nodiscard]] bool is_held() const { return is_held_; }

 private:
  void (*before_)(int);
  const UniqueFd file_;
  const bool is_held_;
};

TEST(Spawner, GivesUpAtTheDeadlineOrAtAStop) {
  ScriptedWorker scripts;
  const auto path = scripts.script(ScriptedWorker::kStay);
  Spawner spawner;
  const HeldFile held(path);
  if (!held.is_held())
    GTEST_SKIP() << "no leases on this file system";
  EXPECT_THAT(spawner.start({path, {}}, Clock::now(), {}),
              test::IsError(ErrorCode::kUnavailable, "the machine does not start " +
                                                         path.native() + " in time"));
  std::stop_source source;
  source.request_stop();
  EXPECT_THAT(spawner.start({path, {}}, Clock::time_point::max(), source.get_token()),
              test::IsError(ErrorCode::kCancelled));
}

TEST(Spawner, SaysWhyNothingStarts) {
  const ScriptedWorker scripts;
  Spawner spawner;
  EXPECT_THAT(
      spawner.start({scripts.folder() / "missing", {}}, Clock::time_point::max(), {}),
      test::IsError(ErrorCode::kUnavailable,
                    HasSubstr("missing: posix_spawn: No such file")));
}

TEST(Spawner, StartsOneAfterTheOther) {
  ScriptedWorker scripts;
  const auto path = scripts.script(ScriptedWorker::kStay);
  Spawner spawner;
  const auto start = [&] {
    return spawner.start({path, {}}, Clock::time_point::max(), {}).value();
  };
  const WorkerProcess first = start();
  const WorkerProcess second = start();
  EXPECT_TRUE(first.alive());
  EXPECT_TRUE(second.alive());
  EXPECT_NE(first.pid(), second.pid());
}

TEST(Spawner, EndsWithItsThreadAndNotAtTheDeadline) {
  ScriptedWorker scripts;
  const auto path = scripts.script(ScriptedWorker::kStay);
  std::optional<Spawner> spawner(std::in_place);
  ASSERT_TRUE(spawner->start({path, {}}, Clock::time_point::max(), {}));
  const auto began = Clock::now();
  spawner.reset();
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(4)) << "its patience is 5 s";
}

}  // namespace
}  // namespace kiln::compile
