// Tickets: a build that its caller makes by himself while others wait for it.

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "tests/integration/files/file_results_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/processes.h"
#include "tests/support/value_of.h"

namespace kiln {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using files::BuildFolder;
using test::FileResultsTest;
using test::Texts;
using test::texts_of;
using test::value_of;

class FilesTicketTest : public FileResultsTest {
 protected:
  using Begun = std::variant<files::FoundFiles, files::FilesTicket>;
  static files::FilesTicket& ticket(Begun& begun) {
    return std::get<files::FilesTicket>(begun);
  }
};

TEST_F(FilesTicketTest, IsForOneAndTheOthersGetWhatItCommits) {
  auto begun = value_of(here_.results.begin(order(), 20s));
  std::vector<test::ChildProcess> others;
  for (int i = 0; i < 4; ++i)
    others.emplace_back([this] {
      Opened own(config());
      auto found = own.results.begin(order(), 20s);
      const auto* const files =
          found ? std::get_if<files::FoundFiles>(&*found) : nullptr;
      return files != nullptr && texts_of(files->given) == Texts{{"a", "1"}} ? 0 : 1;
    });
  std::this_thread::sleep_for(300ms);
  const auto stored = value_of(ticket(begun).commit(test::files_of({{"a", "1"}})));
  EXPECT_EQ(texts_of(stored.given), (Texts{{"a", "1"}}));
  EXPECT_FALSE(stored.not_stored);
  for (auto& each : others) EXPECT_EQ(each.wait(), 0);
}

TEST_F(FilesTicketTest, ThatEndsWithoutFilesIsTheNextOnes) {
  std::optional<Begun> begun = value_of(here_.results.begin(order(), 20s));
  test::ChildProcess other([this] {
    Opened own(config());
    auto found = own.results.begin(order(), 20s);
    auto* const mine = found ? std::get_if<files::FilesTicket>(&*found) : nullptr;
    return mine != nullptr && mine->commit(test::files_of({{"a", "2"}})) ? 0 : 1;
  });
  std::this_thread::sleep_for(300ms);
  begun.reset();
  EXPECT_EQ(other.wait(), 0);
  EXPECT_TRUE(value_of(here_.results.get(order().fields)));
}

TEST_F(FilesTicketTest, ThatFailsIsTheAnswerOfThoseWhoWait) {
  auto begun = value_of(here_.results.begin(order(), 20s));
  test::ChildProcess other([this] {
    Opened own(config());
    const auto found = own.results.build_once(order(), 20s, [](const BuildFolder&) {
      return Result<void>(fail(ErrorCode::kIo, "built twice"));
    });
    return !found && found.error().message.find("no such register") != std::string::npos
               ? 0
               : 1;
  });
  std::this_thread::sleep_for(300ms);
  ticket(begun).fail({ErrorCode::kCompileFailed, "no such register"});
  EXPECT_EQ(other.wait(), 0);
}

TEST_F(FilesTicketTest,
       OfAStoppedProcessIsWaitedForNoLongerThanItsLimitAndFiveSeconds) {
  test::ChildProcess holder([this] {
    Opened own(config());
    auto begun = own.results.begin(order(), 1s);
    std::ofstream(log()) << "begun\n";
    ::pause();
    return 0;
  });
  EXPECT_TRUE(test::eventually(20s, [&] { return fs::exists(log()); }));
  holder.signal(SIGSTOP);
  const auto since = std::chrono::steady_clock::now();
  auto begun = value_of(here_.results.begin(order(), 1s));
  EXPECT_LT(std::chrono::steady_clock::now() - since, 8s);
  EXPECT_TRUE(std::holds_alternative<files::FilesTicket>(begun));
}

}  // namespace
}  // namespace kiln
