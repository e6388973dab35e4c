// Tickets: a build that its caller makes by himself while others wait for it.

#include <csignal>
#include <fstream>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "tests/integration/files/file_cache_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"

namespace kiln::test {
namespace {

class FileBuildTest : public FileCacheTest {
 protected:
  using Begun = std::variant<CachedFiles, FileBuild>;
  static FileBuild& ticket(Begun& begun) { return std::get<FileBuild>(begun); }
  /// A process that says when it asks, and then runs `ask`, which says whether it got
  /// what it should.
  template <typename Ask>
  ChildProcess asking(const Ask& ask) {
    return ChildProcess([this, ask] {
      Opened own(config());
      std::ofstream(log(), std::ios::app) << "asks\n" << std::flush;
      return ask(own.files) ? 0 : 1;
    });
  }
  /// Until so many ask, and some time: they wait then.
  void wait_until_asked(std::uintmax_t processes) const {
    constexpr std::uintmax_t kLine = 5;
    EXPECT_TRUE(eventually(60s, [&] {
      std::error_code none;
      return fs::file_size(log(), none) == kLine * processes;
    }));
    std::this_thread::sleep_for(500ms);
  }
};

TEST_F(FileBuildTest, IsForOneAndTheOthersGetWhatItCommits) {
  auto begun = value_of(here_.files.begin(request(), 60s));
  std::vector<ChildProcess> others;
  for (int i = 0; i < 4; ++i)
    others.push_back(asking([](FileCache& files) {
      const auto found = files.begin(request(), 60s);
      const auto* const other = found ? std::get_if<CachedFiles>(&*found) : nullptr;
      return other != nullptr && texts_of(*other) == Texts{{"a", "1"}};
    }));
  wait_until_asked(4);
  const auto stored = value_of(ticket(begun).commit(files_of({{"a", "1"}})));
  EXPECT_EQ(texts_of(stored), (Texts{{"a", "1"}}));
  EXPECT_FALSE(stored.not_stored);
  for (auto& each : others) EXPECT_EQ(each.wait(), 0);
}

TEST_F(FileBuildTest, ThatEndsWithoutFilesIsTheNextOnes) {
  std::optional<Begun> begun = value_of(here_.files.begin(request(), 60s));
  ChildProcess other = asking([](FileCache& files) {
    auto found = files.begin(request(), 60s);
    auto* const mine = found ? std::get_if<FileBuild>(&*found) : nullptr;
    return mine != nullptr && mine->commit(files_of({{"a", "2"}}));
  });
  wait_until_asked(1);
  begun.reset();
  EXPECT_EQ(other.wait(), 0);
  EXPECT_TRUE(value_of(here_.files.get(request().fields)));
}

TEST_F(FileBuildTest, ThatFailsIsTheAnswerOfThoseWhoWait) {
  auto begun = value_of(here_.files.begin(request(), 60s));
  ChildProcess other = asking([](FileCache& files) {
    const auto found = files.build_once(request(), 60s, [](FileBuild&) {
      return Result<void>(fail(ErrorCode::kIo, "built twice"));
    });
    return !found &&
           found.error().message.find("no such register") != std::string::npos;
  });
  wait_until_asked(1);
  ticket(begun).fail({ErrorCode::kCompileFailed, "no such register"});
  EXPECT_EQ(other.wait(), 0);
}

TEST_F(FileBuildTest, OfAStoppedProcessIsWaitedForNoLongerThanItsLimitAndFiveSeconds) {
  ChildProcess holder([this] {
    Opened own(config());
    auto begun = own.files.begin(request(), 1s);
    std::ofstream(log()) << "begun\n";
    ::pause();
    return 0;
  });
  EXPECT_TRUE(eventually(20s, [&] { return fs::exists(log()); }));
  holder.signal(SIGSTOP);
  const auto since = std::chrono::steady_clock::now();
  auto begun = value_of(here_.files.begin(request(), 1s));
  EXPECT_LT(std::chrono::steady_clock::now() - since, 8s);
  EXPECT_TRUE(std::holds_alternative<FileBuild>(begun));
}

}  // namespace
}  // namespace kiln::test
