#include "cache/object_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <limits>

#include "tests/support/faulty_file_system.h"
#include "tests/support/sample_object.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln::cache {
namespace {

using test::SampleObject;
using test::SampleStore;

class ObjectStoreTest : public testing::Test {
 protected:
  ObjectStoreTest() : faulty_store_(dir_.path() / "root", faulty_) {}

  Published publish(SampleObject& sample) { return store().publish(*sample).outcome; }
  ObjectStore& store() { return faulty_store_.store; }
  Counters& counters() { return faulty_store_.counters; }
  fs::path path(const SampleObject& sample) {
    return faulty_store_.layout.object(sample.key());
  }
  /// Writes over a read-only file, as an accident would.
  void overwrite(const SampleObject& sample, const std::string& bytes) {
    fs::permissions(path(sample), fs::perms::owner_all);
    std::ofstream(path(sample), std::ios::binary | std::ios::trunc) << bytes;
    fs::permissions(path(sample), fs::perms::owner_read);
  }
  std::string bytes_of(const SampleObject& sample) {
    return read_text_file(path(sample), 1 << 20).value();
  }
  std::size_t quarantined() {
    const fs::path folder = faulty_store_.layout.quarantine();
    if (!fs::exists(folder))
      return 0;
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  bool no_temporaries() {
    for (const fs::path& file : dir_.files()) {
      if (Layout::is_temporary(file.filename().native()))
        return false;
    }
    return true;
  }

  const test::TempDir dir_;
  test::FaultyFileSystem faulty_;
  SampleStore faulty_store_;
  SampleObject sample_{1};
};

TEST_F(ObjectStoreTest, FindsWhatWasPublished) {
  EXPECT_EQ(store().find(sample_.key()).value(), std::nullopt);
  EXPECT_EQ(publish(sample_), Published::kStored);
  const auto found = store().find(sample_.key()).value();
  ASSERT_TRUE(found);
  EXPECT_EQ(as_text(found->payload()), sample_.payload());
  EXPECT_TRUE(no_temporaries());
}

TEST_F(ObjectStoreTest, APublishedFileIsReadOnlyAndHasOneName) {
  publish(sample_);
  struct stat info {};
  ASSERT_EQ(::stat(path(sample_).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777U, 0444U);
  EXPECT_EQ(info.st_nlink, 1U);
}

TEST_F(ObjectStoreTest, TheSameBuildTwiceIsAlreadyThere) {
  publish(sample_);
  SampleObject again(1);
  again->ptx = "PTX always differs";
  EXPECT_EQ(publish(again), Published::kAlreadyThere);
}

TEST_F(ObjectStoreTest, ADifferentBuildOfOneKeyIsCountedAndTheFirstStays) {
  publish(sample_);
  SampleObject other(1, "\177ELF another cubin");
  EXPECT_EQ(publish(other), Published::kNondeterministic);
  EXPECT_EQ(as_text(store().find(sample_.key()).value()->payload()), sample_.payload());
  EXPECT_EQ(counters().get(Counter::kNondeterministic), 1U);
}

TEST_F(ObjectStoreTest, ACorruptObjectIsQuarantinedCountedAndAMiss) {
  publish(sample_);
  std::string bytes = bytes_of(sample_);
  bytes[300] ^= 1;
  overwrite(sample_, bytes);
  EXPECT_EQ(store().find(sample_.key()).value(), std::nullopt);
  EXPECT_FALSE(fs::exists(path(sample_)));
  EXPECT_EQ(quarantined(), 1U);
  EXPECT_EQ(counters().snapshot().at("corrupt.checksum"), 1U);
  EXPECT_EQ(publish(sample_), Published::kStored);
  EXPECT_TRUE(store().find(sample_.key()).value());
}

TEST_F(ObjectStoreTest, PublishReplacesACorruptObject) {
  publish(sample_);
  overwrite(sample_, "");
  EXPECT_EQ(publish(sample_), Published::kStored);
  EXPECT_TRUE(store().find(sample_.key()).value());
  EXPECT_EQ(quarantined(), 1U);
}

TEST_F(ObjectStoreTest, AnObjectMovedToAnotherKeyIsAMiss) {
  SampleObject other(2);
  publish(sample_);
  publish(other);
  fs::rename(path(other), path(sample_));
  EXPECT_EQ(store().find(sample_.key()).value(), std::nullopt);
  EXPECT_EQ(counters().snapshot().at("corrupt.key"), 1U);
}

TEST_F(ObjectStoreTest, ThePayloadCheckDecidesOnEveryHitAndBeforeEveryPublish) {
  bool accept = true;
  SampleStore checked(dir_.path() / "root", faulty_,
                      {.payload_check = [&](const StoredObject&) -> Result<void> {
                        if (accept)
                          return {};
                        return fail(ErrorCode::kInvalidArgument,
                                    "another architecture");
                      }});
  EXPECT_EQ(checked.store.publish(*sample_).outcome, Published::kStored);
  EXPECT_TRUE(checked.store.find(sample_.key()).value());
  accept = false;
  EXPECT_EQ(checked.store.find(sample_.key()).value(), std::nullopt);
  EXPECT_EQ(checked.counters.snapshot().at("corrupt.payload"), 1U);
  EXPECT_EQ(checked.store.publish(*sample_).outcome, Published::kNotStored);
  EXPECT_FALSE(fs::exists(path(sample_)));
}

TEST_F(ObjectStoreTest, ASymbolicLinkInPlaceOfAnObjectIsUntrusted) {
  publish(sample_);
  fs::rename(path(sample_), dir_.path() / "elsewhere");
  fs::create_symlink(dir_.path() / "elsewhere", path(sample_));
  EXPECT_EQ(store().find(sample_.key()).error().code, ErrorCode::kUntrusted);
  EXPECT_EQ(counters().get(Counter::kUntrusted), 1U);
}

TEST_F(ObjectStoreTest, AFifoInPlaceOfAnObjectIsUntrustedAndNotWaitedFor) {
  publish(sample_);
  fs::remove(path(sample_));
  ASSERT_EQ(::mkfifo(path(sample_).c_str(), 0600), 0);
  EXPECT_EQ(store().find(sample_.key()).error().code, ErrorCode::kUntrusted);
  EXPECT_EQ(publish(sample_), Published::kNotStored);
}

TEST_F(ObjectStoreTest, AFileThatOthersCanWriteIsUntrusted) {
  publish(sample_);
  ::chmod(path(sample_).c_str(), 0664);
  EXPECT_EQ(store().find(sample_.key()).error().code, ErrorCode::kUntrusted);
  EXPECT_EQ(store().verify(sample_.key())->what, ObjectProblem::What::kUntrusted);
}

TEST_F(ObjectStoreTest, AFolderThatOthersCanWriteIsUntrusted) {
  publish(sample_);
  ::chmod(path(sample_).parent_path().c_str(), 0777);
  EXPECT_EQ(store().find(sample_.key()).error().code, ErrorCode::kUntrusted);
}

TEST_F(ObjectStoreTest, AFileOfAnotherUserIsUntrusted) {
  publish(sample_);
  faulty_.on_stat = [](std::string_view, struct stat& info) { info.st_uid = 4711; };
  EXPECT_EQ(store().find(sample_.key()).error().code, ErrorCode::kUntrusted);
}

TEST_F(ObjectStoreTest, AStaleHandleIsTriedAgainThreeTimesAndThenAMissWithAReason) {
  publish(sample_);
  int failures = 0;
  int most = 3;
  faulty_.before = [&](std::string_view call, int) {
    return call == "pread" && failures < most && ++failures > 0 ? -ESTALE : 0;
  };
  EXPECT_TRUE(store().find(sample_.key()).value());
  failures = 0;
  most = 100;
  EXPECT_EQ(store().find(sample_.key()).error().code, ErrorCode::kIo);
  EXPECT_EQ(failures, 4);
  EXPECT_TRUE(fs::exists(path(sample_)));
}

// To a collector whose clock is ahead it is an orphan.
TEST_F(ObjectStoreTest, ATemporaryThatIsSweptBeforeItIsNamedIsWrittenOnceMore) {
  int sweeps = 0;
  int most = 1;
  faulty_.before = [&](std::string_view call, int) {
    if (call != "link" || sweeps == most)
      return 0;
    ++sweeps;
    for (const auto& entry : fs::directory_iterator(path(sample_).parent_path()))
      fs::remove(entry.path());
    return 0;
  };
  EXPECT_EQ(publish(sample_), Published::kStored);
  EXPECT_EQ(sweeps, 1);
  EXPECT_TRUE(store().find(sample_.key()).value());
  fs::remove(path(sample_));
  most = 100;
  sweeps = 0;
  EXPECT_EQ(publish(sample_), Published::kNotStored);
  EXPECT_EQ(sweeps, 2);
}

TEST_F(ObjectStoreTest, AFileThatIsTruncatedWhileItIsReadIsAMiss) {
  publish(sample_);
  fs::permissions(path(sample_), fs::perms::owner_write, fs::perm_options::add);
  faulty_.before = [&](std::string_view call, int) {
    if (call == "pread")
      fs::resize_file(path(sample_), fs::file_size(path(sample_)) / 2);
    return 0;
  };
  const auto found = store().find(sample_.key());
  EXPECT_TRUE(!found || !*found);
}

TEST_F(ObjectStoreTest, NoDescriptorsLeftIsAnErrorAndNothingIsQuarantined) {
  publish(sample_);
  faulty_.fail("open", EMFILE);
  EXPECT_EQ(store().find(sample_.key()).error().code, ErrorCode::kIo);
  faulty_.before = [](auto, int) { return 0; };
  EXPECT_TRUE(store().find(sample_.key()).value());
}

TEST_F(ObjectStoreTest, AnObjectIsMarkedAsUsedAtMostOnceAnHour) {
  publish(sample_);
  const auto touches = [&] {
    faulty_.forget_calls();
    EXPECT_TRUE(store().find(sample_.key()).value());
    const auto calls = faulty_.calls();
    return std::count(calls.begin(), calls.end(), "touch");
  };
  EXPECT_EQ(touches(), 0);
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(path(sample_), now - std::chrono::hours(2));
  EXPECT_EQ(touches(), 1);
  EXPECT_EQ(touches(), 0);
  fs::last_write_time(path(sample_), now + std::chrono::hours(24));
  EXPECT_EQ(touches(), 1) << "a stamp in the future is put right";
}

TEST_F(ObjectStoreTest, AStampThatNoClockOfOursReachesCostsNoHit) {
  publish(sample_);
  for (const std::time_t seconds :
       {std::numeric_limits<std::time_t>::max(),
        std::numeric_limits<std::time_t>::min(), std::time_t{-1}}) {
    faulty_.on_stat = [=](std::string_view, struct stat& info) {
      info.st_mtim = {seconds, 999'999'999};
    };
    EXPECT_TRUE(store().find(sample_.key()).value());
    const Entry entry = store().describe(sample_.key()).value().value();
    EXPECT_EQ(entry.last_used_ns > 1'000'000'000, seconds > 0);
    EXPECT_GE(entry.last_used_ns, 0);
  }
}

TEST_F(ObjectStoreTest, AReadOnlyStoreServesHitsAndWritesNothing) {
  publish(sample_);
  SampleObject bad(2);
  publish(bad);
  overwrite(bad, "rubbish");
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(48);
  fs::last_write_time(path(sample_), old);
  faulty_.forget_calls();
  SampleStore frozen(dir_.path() / "root", faulty_, {.access = Access::kReadOnly});
  EXPECT_TRUE(frozen.store.find(sample_.key()).value());
  EXPECT_EQ(frozen.store.find(bad.key()).value(), std::nullopt);
  EXPECT_EQ(frozen.store.publish(*sample_).outcome, Published::kNotStored);
  EXPECT_EQ(frozen.store.remove(sample_.key()).error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(faulty_.calls(),
              testing::Each(testing::AnyOf("open", "fstat", "stat", "pread", "lstat")));
}

TEST_F(ObjectStoreTest, DescribeReadsHeaderAndMetadataAlone) {
  publish(sample_);
  const Entry entry = store().describe(sample_.key()).value().value();
  EXPECT_EQ(entry.key, sample_.key());
  EXPECT_EQ(entry.template_name, "scaled_softmax_fwd");
  EXPECT_EQ(entry.arch, "9.0a");
  EXPECT_EQ(entry.registers, 40U);
  EXPECT_EQ(entry.size_bytes, fs::file_size(path(sample_)));
  overwrite(sample_, bytes_of(sample_).substr(0, 280));
  EXPECT_EQ(store().describe(sample_.key()).error().code, ErrorCode::kCorrupt);
}

TEST_F(ObjectStoreTest, ListLeavesOutWhatIsNotAnObjectOfOurs) {
  publish(sample_);
  const fs::path folder = path(sample_).parent_path();
  std::ofstream(folder / "README") << "x";
  std::ofstream(Layout::temporary_in(folder.native())) << "x";
  const unsigned number = std::to_integer<unsigned>(sample_.key().bytes()[0]);
  ASSERT_EQ(store().list(number).value().size(), 1U);
  EXPECT_EQ(store().list(number).value()[0].key, sample_.key());
  EXPECT_EQ(store().list((number + 1) % 256).value().size(), 0U);
}

TEST_F(ObjectStoreTest, VerifyNamesTheCheckThatFailed) {
  publish(sample_);
  EXPECT_FALSE(store().verify(sample_.key()));
  std::string bytes = bytes_of(sample_);
  bytes[0] = 'X';
  overwrite(sample_, bytes);
  const auto problem = store().verify(sample_.key());
  EXPECT_EQ(problem->check, Check::kMagic);
  EXPECT_TRUE(store().quarantine(sample_.key(), problem->seen, *problem->check));
  EXPECT_FALSE(store().verify(sample_.key()));
}

TEST_F(ObjectStoreTest, QuarantineLetsAReplacedObjectBe) {
  publish(sample_);
  struct stat seen {};
  ::stat(path(sample_).c_str(), &seen);
  const fs::path kept = dir_.path() / "kept";  // so that the inode is not used again
  fs::rename(path(sample_), kept);
  publish(sample_);
  EXPECT_FALSE(store().quarantine(sample_.key(), seen, Check::kChecksum));
  EXPECT_TRUE(fs::exists(path(sample_)));
}

// Publishing, with each of its calls failing in turn.

TEST_F(ObjectStoreTest, WhateverCallOfAPublishFailsTheObjectIsAbsentOrWhole) {
  publish(sample_);
  SampleObject other(2);
  faulty_.forget_calls();
  publish(other);
  const std::vector<std::string> calls = faulty_.calls();
  ASSERT_THAT(calls, testing::Contains("fdatasync"));
  for (std::size_t fails = 0; fails < calls.size(); ++fails) {
    SCOPED_TRACE(testing::Message() << fails << ": " << calls[fails]);
    fs::remove(path(other));
    faulty_.forget_calls();
    faulty_.before = [&](std::string_view, int number) {
      return number == static_cast<int>(fails) ? -ENOSPC : 0;
    };
    const PublishResult result = store().publish(*other);
    faulty_.before = [](auto, int) { return 0; };
    if (result.outcome == Published::kNotStored) {
      EXPECT_TRUE(result.error);
      EXPECT_FALSE(fs::exists(path(other)));
      EXPECT_GE(counters().snapshot().at("publish_refused.ENOSPC"), 1U);
    } else {
      EXPECT_TRUE(store().find(other.key()).value());
    }
  }
}

TEST_F(ObjectStoreTest, AFailedSyncIsNotRepeatedAndNothingIsPublished) {
  faulty_.fail("fdatasync", EIO);
  EXPECT_EQ(publish(sample_), Published::kNotStored);
  const auto calls = faulty_.calls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "fdatasync"), 1);
  EXPECT_FALSE(fs::exists(path(sample_)));
  EXPECT_TRUE(no_temporaries());
}

TEST_F(ObjectStoreTest, AQuotaThatShowsAtCloseIsNotStored) {
  faulty_.fail("close", EDQUOT);
  EXPECT_EQ(publish(sample_), Published::kNotStored);
  EXPECT_EQ(counters().snapshot().at("publish_refused.EDQUOT"), 1U);
  EXPECT_FALSE(fs::exists(path(sample_)));
}

TEST_F(ObjectStoreTest, ALinkThatWorkedButReportedAnErrorIsStored) {
  for (const int err : {-EEXIST, -EIO}) {
    SampleObject sample(-err);
    faulty_.after = [&](std::string_view call, int) {
      return call == "link" ? err : 0;
    };
    EXPECT_EQ(publish(sample), Published::kStored);
    EXPECT_TRUE(store().find(sample.key()).value());
  }
}

TEST_F(ObjectStoreTest, WithoutHardLinksTheFileIsRenamed) {
  faulty_.fail("link", EPERM);
  EXPECT_EQ(publish(sample_), Published::kStored);
  EXPECT_EQ(publish(sample_), Published::kAlreadyThere);
  EXPECT_TRUE(no_temporaries());
}

TEST_F(ObjectStoreTest, WithoutRenameat2EitherTheFileIsRenamedPlainly) {
  faulty_.before = [](std::string_view call, int) {
    return call == "link" ? -EOPNOTSUPP : call == "rename_no_replace" ? -EINVAL : 0;
  };
  EXPECT_EQ(publish(sample_), Published::kStored);
  SampleObject other(1, "other");
  EXPECT_EQ(publish(other), Published::kNondeterministic);
  EXPECT_TRUE(no_temporaries());
}

TEST_F(ObjectStoreTest, AFolderThatVanishesIsMadeAgain) {
  publish(sample_);
  fs::remove_all(dir_.path() / "root");
  EXPECT_EQ(publish(sample_), Published::kStored);
}

}  // namespace
}  // namespace kiln::cache
