// What is known of headers by their stamps, and a memo that lies.

#include "key/header_store.h"

#include "files.h"
#include "key/memo_codec.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::key {
namespace {

using test::later;
using test::write;

constexpr std::uint64_t kEnough = 1 << 20;

class HeaderStoreTest : public testing::Test {
 protected:
  static FileStamp stamp(std::uint64_t inode) {
    FileStamp stamp;
    stamp.inode = inode;
    stamp.mtime_ns = -1;
    stamp.reliable = true;
    return stamp;
  }

  /// A header of that text, known by that stamp.
  KnownHeader header(std::uint64_t inode, const std::string& text) {
    const auto path = dir_.path() / "header.h";
    write(path, text);
    HeaderStore reader({});
    return {stamp(inode), reader.read(path, later(), kEnough).value().content};
  }

  /// The memo's payload, whole or changed by a test.
  [[nodiscard]] Bytes payload() const { return read_memo(memos_, "m").value(); }
  void replace(ByteView bytes) const {
    ASSERT_EQ(write_memo(memos_, "m", bytes), MemoWrite::kWritten);
  }
  /// Whether a store that loads the memo knows that one.
  [[nodiscard]] bool is_known(std::uint64_t inode) const {
    HeaderStore store(memos_);
    store.load("m");
    return store.find(stamp(inode)) != nullptr;
  }

  const test::TempDir dir_;
  const OwnFolder memos_ = dir_.path() / "memo";
  const HeaderStore store_{memos_};
};

TEST_F(HeaderStoreTest, AMemoHoldsDigestAndDirectivesWithTheirLines) {
  const KnownHeader known =
      header(1,
             "#include \"a.h\"\n#include_next <b.h>\n#include M\n#define M <c.h>\n"
             "__DATE__\n");
  ASSERT_EQ(store_.save("m", {known}), MemoWrite::kWritten);
  HeaderStore store(memos_);
  EXPECT_EQ(store.find(stamp(1)), nullptr) << "not loaded yet";
  store.load("m");
  const SharedContent found = store.find(stamp(1));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->digest, known.content->digest);
  ASSERT_EQ(found->directives.list.size(), 3U);
  EXPECT_EQ(found->directives.list, known.content->directives.list);
  ASSERT_EQ(found->directives.macro_values.size(), 1U);
  EXPECT_EQ(found->directives.macro_values, known.content->directives.macro_values);
  ASSERT_TRUE(found->directives.build_time);
  EXPECT_EQ(found->directives.build_time->name, "__DATE__");
  EXPECT_EQ(found->directives.build_time->line, 5);
  EXPECT_EQ(store.find(stamp(2)), nullptr);
}

TEST_F(HeaderStoreTest, AMemoOfAnyOtherLengthIsNone) {
  std::ignore = store_.save("m", {header(1, "#include \"a.h\"\n"), header(2, "")});
  Bytes bytes = payload();
  ASSERT_TRUE(is_known(1));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    replace(ByteView(bytes).first(size));
    ASSERT_FALSE(is_known(1)) << size;
  }
  bytes.push_back(std::byte{0});
  replace(bytes);
  EXPECT_FALSE(is_known(1));
}

TEST_F(HeaderStoreTest, AMemoOfAnotherFormatIsNone) {
  std::ignore = store_.save("m", {header(1, "")});
  Bytes bytes = payload();
  bytes[0] ^= std::byte{2};
  replace(bytes);
  EXPECT_FALSE(is_known(1));
}

TEST_F(HeaderStoreTest, AMemoOfCountsWithoutEndIsNoneAndEndsAtItsBytes) {
  for (const std::size_t numbers : {2U, 3U, 12U}) {
    MemoWriter out;
    out.number(3U);  // its format
    for (std::size_t i = 1; i < numbers; ++i) out.number(~std::uint64_t{0});
    replace(out.take());
    EXPECT_FALSE(is_known(~std::uint64_t{0})) << numbers;
  }
}

TEST_F(HeaderStoreTest, AMemoKeepsWhatItHeldBehindWhatIsUsed) {
  std::ignore = store_.save("m", {header(1, "old"), header(2, "two")});
  const KnownHeader newer = header(1, "new");
  ASSERT_EQ(store_.save("m", {header(3, "three"), newer}), MemoWrite::kWritten);
  HeaderStore store(memos_);
  store.load("m");
  EXPECT_EQ(store.find(stamp(1))->digest, newer.content->digest);
  EXPECT_NE(store.find(stamp(2)), nullptr);
  EXPECT_NE(store.find(stamp(3)), nullptr);
  const Bytes bytes = payload();
  MemoReader in(bytes);
  std::uint64_t number = 0;
  in.number(number);
  EXPECT_EQ(number, 4U) << "the format";
  in.number(number);
  EXPECT_EQ(number, 3U) << "each stamp once";
  FileStamp first;
  kMemoStamp(in, first);
  EXPECT_EQ(first, stamp(3)) << "what is used comes first";
}

TEST_F(HeaderStoreTest, AMemoIsLoadedOnceInAProcess) {
  HeaderStore store(memos_);
  store.load("m");
  std::ignore = store_.save("m", {header(1, "")});
  store.load("m");
  EXPECT_EQ(store.find(stamp(1)), nullptr);
}

TEST_F(HeaderStoreTest, OnlyWhatIsSettledIsFoundAgain) {
  const auto path = dir_.path() / "a.h";
  write(path, "text");
  HeaderStore store({});
  const auto fresh = store.read(path, std::chrono::system_clock::now(), kEnough);
  ASSERT_TRUE(fresh);
  EXPECT_EQ(fresh->content->digest, Digest::of(as_bytes("text")));
  EXPECT_FALSE(fresh->settled);
  EXPECT_EQ(store.find(fresh->stamp), nullptr);
  const auto settled = store.read(path, later(), kEnough);
  ASSERT_TRUE(settled);
  EXPECT_TRUE(settled->settled);
  EXPECT_EQ(settled->stamp, fresh->stamp);
  EXPECT_EQ(store.find(settled->stamp), settled->content);
}

TEST_F(HeaderStoreTest, AMemosWordIsForReliableStampsAlone) {
  std::ignore = store_.save("m", {header(1, "")});
  HeaderStore store(memos_);
  store.load("m");
  FileStamp elsewhere = stamp(1);  // the same numbers on another file system
  elsewhere.reliable = false;
  EXPECT_NE(store.find(stamp(1)), nullptr);
  EXPECT_EQ(store.find(elsewhere), nullptr);
}

TEST_F(HeaderStoreTest, AnEmptyFileIsNotFoundAgain) {
  const auto path = dir_.path() / "a.h";
  write(path, "");
  HeaderStore store({});
  const auto read = store.read(path, later(), kEnough);
  ASSERT_TRUE(read);
  EXPECT_EQ(store.find(read->stamp), nullptr) << "procfs says so of full ones";
}

TEST_F(HeaderStoreTest, AFileThatWentOrGrewIsAnErrorWithItsName) {
  HeaderStore store({});
  EXPECT_THAT(store.read(dir_.path() / "gone.h", later(), kEnough),
              test::IsError(ErrorCode::kNotFound, HasSubstr("gone.h went away")));
  const auto path = dir_.path() / "large.h";
  write(path, "12345");
  EXPECT_TRUE(store.read(path, later(), 5));
  const auto large = HeaderStore({}).read(path, later(), 4);
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().message, HasSubstr("large.h"));
}

TEST_F(HeaderStoreTest, WithoutAFolderNothingIsSaved) {
  EXPECT_EQ(HeaderStore({}).save("m", {header(1, "")}), MemoWrite::kNotNeeded);
}

}  // namespace
}  // namespace kiln::key
