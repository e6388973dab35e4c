#include "cache/key_file.h"

#include <cerrno>

#include "tests/support/faulty_file_system.h"
#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "tests/support/trusted_keys.h"
#include "util/log.h"

namespace kiln::cache {
namespace {

using test::replace_keys;

class KeyFileTest : public testing::Test {
 protected:
  KeyFileTest() {
    replace_keys(path_, to_text(ours_));
    log_to([this](LogLevel, const std::string& line) { log_.push_back(line); });
  }
  ~KeyFileTest() override { log_to({}); }

  void let_pass() { now_ += KeyFile::kPause; }
  /// Whether this key is trusted now; nobody is, where there are no keys.
  bool trusts(const PublicKey& key) {
    const auto keys = file_.keys();
    return keys && (*keys)->trusts(key.id);
  }

  const test::TempDir dir_;
  const fs::path path_ = dir_.path() / "trusted.pub";
  const PublicKey ours_ = PrivateKey::generate()->public_key();
  const PublicKey theirs_ = PrivateKey::generate()->public_key();
  test::FaultyFileSystem files_;
  std::vector<std::string> log_;
  KeyFile::Clock::time_point now_{};
  KeyFile file_{files_, TrustPolicy::of_this_process({}), path_,
                [this] { return now_; }};
};

TEST_F(KeyFileTest, AChangedFileIsReadAgainAfterAPauseAndNotBefore) {
  EXPECT_TRUE(trusts(ours_));
  replace_keys(path_, to_text(theirs_));
  EXPECT_TRUE(trusts(ours_)) << "within the pause";
  let_pass();
  EXPECT_FALSE(trusts(ours_));
  EXPECT_TRUE(trusts(theirs_));
  replace_keys(path_, to_text(ours_) + "revoked key " + key_name(ours_.id) + "\n");
  let_pass();
  EXPECT_FALSE(trusts(ours_));
  EXPECT_LE(KeyFile::kPause, std::chrono::seconds(30)) << "which the documents promise";
}

TEST_F(KeyFileTest, TheSameFileGivesTheSameKeys) {
  const auto first = file_.keys().value();
  EXPECT_EQ(file_.keys().value(), first);
  replace_keys(path_, to_text(ours_));
  let_pass();
  EXPECT_EQ(file_.keys().value(), first) << "nothing has to be checked again";
}

TEST_F(KeyFileTest, AFileThatIsGoneMalformedOrOpenToOthersTrustsNobodyAndIsSaidOnce) {
  EXPECT_TRUE(trusts(ours_));
  const std::vector<std::pair<std::string, std::function<void()>>> faults{
      {"gone", [&] { fs::remove(path_); }},
      {"empty", [&] { replace_keys(path_, ""); }},
      {"cut", [&] { replace_keys(path_, to_text(ours_).substr(0, 60)); }},
      {"of a later version",
       [&] { replace_keys(path_, to_text(ours_) + "expires 7\n"); }},
      {"open", [&] { fs::permissions(path_, fs::perms(0666)); }},
      {"a folder", [&] { fs::remove(path_), fs::create_directory(path_); }}};
  for (const auto& [name, cause] : faults) {
    cause();
    let_pass();
    log_.clear();
    EXPECT_FALSE(trusts(ours_)) << name;
    let_pass();
    EXPECT_FALSE(trusts(ours_)) << name;
    ASSERT_EQ(log_.size(), 1U) << name;
    EXPECT_THAT(log_[0], testing::AllOf(testing::HasSubstr("no signature counts until"),
                                        testing::HasSubstr(path_.native())));
    fs::remove(path_);
    replace_keys(path_, to_text(ours_));
    let_pass();
    EXPECT_TRUE(trusts(ours_)) << "it is good again";
  }
}

TEST_F(KeyFileTest, AFileThatCannotBeReadChangesNothingAndThatIsSaidOnce) {
  int error = -EIO;
  files_.before = [&](std::string_view call, int) {
    return call == "lstat" ? error : 0;
  };
  EXPECT_THAT(file_.keys(), test::IsError(ErrorCode::kIo, testing::_))
      << "nothing has been read yet";
  error = 0;
  let_pass();
  EXPECT_TRUE(trusts(ours_));
  EXPECT_EQ(log_.size(), 0U);
  replace_keys(path_, to_text(theirs_));
  for (const int each : {-EACCES, -ESTALE}) {
    error = each;
    let_pass();
    EXPECT_TRUE(trusts(ours_));
    ASSERT_EQ(log_.size(), 1U);
  }
  EXPECT_THAT(log_[0], testing::ContainsRegex(
                           "key file " + path_.native() +
                           " cannot.* as of 20.*Z stay in use: .* cannot be entered"));
  error = 0;
  let_pass();
  EXPECT_TRUE(trusts(theirs_));
}

TEST_F(KeyFileTest, ManyThreadsAskWhileTheFileIsReplaced) {
  std::atomic<int> asked = 0;
  KeyFile file(real_file_system(), TrustPolicy::of_this_process({}), path_, [&asked] {
    return KeyFile::Clock::time_point{} + ++asked * KeyFile::kPause;
  });
  test::in_threads(8, [&](int thread) {
    for (int i = 0; i < 50; ++i) {
      if (thread == 0)
        replace_keys(path_, to_text(i % 2 == 0 ? theirs_ : ours_));
      const auto keys = file.keys();
      ASSERT_TRUE(keys) << keys.error().message;
      EXPECT_EQ((*keys)->keys.size(), 1U);
    }
  });
}

}  // namespace
}  // namespace kiln::cache
