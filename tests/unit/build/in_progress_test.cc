// What `kiln ps` lists: builds and waits of live processes, and nothing of dead ones.

#include "build/in_progress.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/child_process.h"
#include "tests/support/processes.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

class InProgressTest : public testing::Test {
 protected:
  [[nodiscard]] InProgressFile file() const {
    return {folder_, key_, "scale.cu", "sm_90"};
  }
  [[nodiscard]] std::vector<InProgress> list() const {
    return list_in_progress(folder_);
  }

  const test::TempDir dir_;
  const OwnFolder folder_{dir_.path() / "in_progress"};
  const Digest key_ = Digest::of(as_bytes("a key"));
};

TEST_F(InProgressTest, ABuildIsListedInItsPhaseAsLongAsItLasts) {
  {
    InProgressFile build = file();
    EXPECT_THAT(list(), IsEmpty());  // it has not begun
    build.enter("queued for a slot");
    build.enter("compiling");
    const auto all = list();
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].key, key_);
    EXPECT_EQ(all[0].label, "scale.cu");
    EXPECT_EQ(all[0].target, "sm_90");
    EXPECT_EQ(all[0].phase, "compiling");
    EXPECT_EQ(all[0].pid, ::getpid());
    EXPECT_FALSE(all[0].is_stopped || all[0].is_elsewhere);
    EXPECT_LT(all[0].age, 60s);
    const InProgressFile moved = std::move(build);
    EXPECT_EQ(list().size(), 1U);
  }
  EXPECT_THAT(list(), IsEmpty());
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(InProgressTest, ABuildComesBeforeThoseWhoWaitForIt) {
  InProgressFile waits = file();
  waits.enter(kWaitingPhase);
  InProgressFile builds = file();
  builds.enter("compiling");
  const auto all = list();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].phase, "compiling");
  EXPECT_EQ(all[1].phase, kWaitingPhase);
}

TEST_F(InProgressTest, AKilledProcessIsNotListedAndItsFileIsRemoved) {
  test::ChildProcess builder([&] {
    InProgressFile build = file();
    build.enter("compiling");
    ::pause();
    return 0;
  });
  EXPECT_TRUE(test::eventually(10s, [&] { return list().size() == 1; }));
  EXPECT_EQ(::kill(builder.pid(), SIGSTOP), 0);
  EXPECT_TRUE(test::eventually(10s, [&] {
    const auto all = list();
    return all.size() == 1 && all[0].is_stopped;
  }));
  EXPECT_EQ(::kill(builder.pid(), SIGKILL), 0);
  builder.wait();
  EXPECT_THAT(list(), IsEmpty());
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(InProgressTest, AForkedChildDoesNotEndItsParentsBuild) {
  InProgressFile build = file();
  build.enter("compiling");
  test::ChildProcess child([&] {
    const InProgressFile copy = std::move(build);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(list().size(), 1U);
}

TEST_F(InProgressTest, WithoutAFolderNothingIsKept) {
  const OwnFolder none;
  InProgressFile build(none, key_, "scale.cu", "sm_90");
  build.enter("compiling");
  EXPECT_THAT(list_in_progress(none), IsEmpty());
}

}  // namespace
}  // namespace kiln
