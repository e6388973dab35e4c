// Which headers belong to a source's key, and what the scan costs and remembers.

#include "key/header_scan.h"

#include <sys/stat.h>
#include <unistd.h>

#include "header_trees.h"
#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"
#include "tests/support/test.h"

namespace kiln::key {
namespace {

using test::later;
using test::write;

TEST_F(HeaderScanTest, ASourceWithoutIncludesHasNoFields) {
  input_.source = "__global__ void f() {}";
  EXPECT_THAT(fields().list(), IsEmpty());
}

TEST_F(HeaderScanTest, GivesTheSameFieldsForTheSameTreeInAnotherFolder) {
  input_.source = "#include <d/a.h>\n#include <cuda.h>\n#include <none.h>";
  write(one_ / "d" / "a.h", "#include \"b.h\"\n#include \"../c.h\"");
  write(one_ / "d" / "b.h", "");
  write(one_ / "c.h", "");
  write(toolkit_ / "cuda.h", "#include <none2.h>");
  const Fields here = fields();
  const test::TempDir other;
  for (const char* name : {"one", "two", "toolkit"})
    fs::copy(dir_.path() / name, other.path() / name, fs::copy_options::recursive);
  input_.include_dirs = {other.path() / "one", other.path() / "two"};
  const std::vector<fs::path> toolkit{other.path() / "toolkit",
                                      other.path() / "toolkit/cccl"};
  const auto there = HeaderScanner(other.path() / "memo").scan(input_, toolkit);
  ASSERT_TRUE(there);
  EXPECT_EQ(there->headers->fields, here);
}

TEST_F(HeaderScanTest, SeesTheOrderOfFoldersWhereItChangesWhatIsFound) {
  input_.source = "#include <a.h>";
  write(one_ / "a.h", "1");
  const Fields before = fields();
  std::swap(input_.include_dirs[0], input_.include_dirs[1]);
  EXPECT_EQ(fields(), before);
  write(two_ / "a.h", "2");
  EXPECT_NE(fields(), before);
}

TEST_F(HeaderScanTest, SeesWhetherAFolderComesBeforeOrBehindTheToolkit) {
  input_.source = "#include <cub.h>";
  write(toolkit_ / "cub.h", "#include <fp16.h>");
  write(toolkit_ / "fp16.h", "");
  write(one_ / "fp16.h", "");
  input_.include_dirs = {one_, toolkit_};
  const Fields before = fields();
  input_.include_dirs = {toolkit_, one_};
  EXPECT_NE(fields(), before);
}

TEST_F(HeaderScanTest, KnowsTheToolkitByAnotherName) {
  write(toolkit_ / "cuda.h", "#include <inner.h>");
  write(toolkit_ / "inner.h", "");
  fs::create_directory_symlink(toolkit_, dir_.path() / "alias");
  input_.include_dirs = {dir_.path() / "alias"};
  input_.source = "#include <cuda.h>";
  const HeaderSnapshot headers = *scan().headers;
  EXPECT_THAT(headers.files, IsEmpty());
  EXPECT_THAT(headers.toolkit, testing::SizeIs(1));
}

TEST_F(HeaderScanTest, CallsTheFieldsOfOneTreeAsEver) {
  write(toolkit_ / "cccl/cub.h", "");
  input_.source = "#include <cub.h>";
  const Fields one = fields();
  EXPECT_EQ(one.find("include_graph"), "0: toolkit/cccl/cub.h\n");
  EXPECT_TRUE(one.find("toolkit_headers"));
}

TEST_F(HeaderScanTest, FollowsEveryByteOfEachOfTheToolkitsTrees) {
  const fs::path beside = dir_.path() / "beside";
  write(toolkit_ / "cuda.h", "#include <cub.h>");
  write(beside / "cub.h", "#include <shadowed.h>");
  toolkit_folders_ = {toolkit_, beside};
  for (const char* source : {"#include <cuda.h>", "#include <cub.h>"}) {
    input_.source = source;
    const Fields before = fields();
    write(beside / "cub.h", std::string("#include <shadowed.h>\n//") + source);
    const Fields after = fields();
    EXPECT_NE(after, before);
    EXPECT_EQ(after.find("toolkit_headers"), before.find("toolkit_headers"));
    EXPECT_NE(after.find("toolkit2_headers"), before.find("toolkit2_headers"));
    write(one_ / "shadowed.h", source);
    EXPECT_NE(fields(), after);
  }
}

TEST_F(HeaderScanTest, SeesTheOrderOfTheToolkitsTrees) {
  const fs::path beside = dir_.path() / "beside";
  write(toolkit_ / "version.h", "1");
  write(beside / "version.h", "2");
  input_.source = "#include <version.h>";
  toolkit_folders_ = {toolkit_, beside};
  const Fields before = fields();
  toolkit_folders_ = {beside, toolkit_};
  EXPECT_NE(fields(), before);
}

TEST_F(HeaderScanTest, SeesAHeaderInMemoryThatIsCalledAsAFile) {
  // NVRTC takes it for the file once it has seen #pragma once in it.
  write(two_ / "a.h", "");
  input_.source = "#include <a.h>";
  input_.memory_headers = {{one_ / "a.h", "#pragma once"}};
  const Fields before = fields();
  input_.include_dirs = {two_};
  EXPECT_NE(fields(), before);
}

TEST_F(HeaderScanTest, TakesHeadersInMemoryInAnyOrderAndEveryByteOfThem) {
  input_.memory_headers = {{"a.h", "1"}, {"b.h", "2"}};
  const Fields before = fields();
  std::swap(input_.memory_headers[0], input_.memory_headers[1]);
  EXPECT_EQ(fields(), before);
  std::swap(input_.memory_headers[0].name, input_.memory_headers[1].name);
  EXPECT_NE(fields(), before);
}

TEST_F(HeaderScanTest, ListsComputedIncludesWithTheirPlace) {
  input_.source = "#include <a.h>\n";
  write(one_ / "a.h", "\n#define STR(x) #x\n#include STR(b.h)\n");
  const HeaderSnapshot headers = *scan().headers;
  ASSERT_EQ(headers.computed.size(), 1U);
  EXPECT_EQ(headers.computed[0].file, "a.h");
  EXPECT_EQ(headers.computed[0].line, 3);
  EXPECT_EQ(headers.computed[0].directive, "#include STR(b.h)");
}

TEST_F(HeaderScanTest, FindsTheHeaderThatADefineNamesForAComputedInclude) {
  write(one_ / "a.h", "1");
  write(two_ / "b.h", "#include H");
  input_.macros = {{MacroAction::kDefine, "N=4"}, {MacroAction::kDefine, "H=\"a.h\""}};
  input_.source = "#include <b.h>";
  const Fields before = fields();
  EXPECT_TRUE(before.find("header/a.h"));
  write(one_ / "a.h", "2");
  EXPECT_NE(fields(), before);
  input_.source = "int i;";
  EXPECT_THAT(fields().list(), IsEmpty()) << "nothing asks for it";
}

TEST_F(HeaderScanTest, FindsItHoweverTheDefineIsWritten) {
  write(one_ / "d" / "a.h", "1");
  input_.source = "#include H\n#include H(x)\n";
  for (const char* const define : {"H=\"d//a.h\"", "H=<d//a.h>", "H(x)=<d/a.h>"}) {
    input_.macros = {{MacroAction::kDefine, define}};
    EXPECT_EQ(scan().headers->files.size(), 1U) << define;
  }
}

TEST_F(HeaderScanTest, ComposesPathsOfMacrosThatTheSourceOrADefineHas) {
  write(one_ / "sub" / "a.h", "1");
  write(one_ / "other" / "a.h", "1");
  input_.source =
      "#define SUB sub\n#define H <SUB/a.h>\n#include H\n"
      "#define OTHER_H <OTHER/a.h>\n#include OTHER_H\n";
  input_.macros = {{MacroAction::kDefine, "OTHER=other"}};
  const std::string text = Digest::of(as_bytes("1")).hex();
  EXPECT_EQ(value("header/sub/a.h"), text);
  EXPECT_TRUE(value("header/other/a.h").starts_with(text));
}

TEST_F(HeaderScanTest, EndsWhereHeadersIncludeEachOtherThroughDots) {
  input_.source = "#include <x/a.h>";
  write(one_ / "x/a.h", "#include \"../y/b.h\"\n#include \"../x/a.h\"");
  write(one_ / "y/b.h", "#include \"../x/a.h\"\n#include \"../y/b.h\"");
  fs::create_directory_symlink(".", one_ / "x" / "again");
  write(one_ / "y/c.h", "#include \"again/a.h\"");
  EXPECT_EQ(scan().headers->files.size(), 2U);
}

TEST_F(HeaderScanTest, HasALimitThatItNames) {
  for (int i = 0; i < 20; ++i)
    write(one_ / (std::to_string(i) + ".h"),
          "#include \"" + std::to_string(i + 1) + ".h\"");
  input_.source = "#include \"0.h\"";
  EXPECT_THAT(HeaderScanner({}, {.files = 10}).scan(input_, toolkit_folders_),
              test::IsError(ErrorCode::kResourceLimit, testing::HasSubstr("10")));
  const auto edges = HeaderScanner({}, {.edges = 5}).scan(input_, toolkit_folders_);
  EXPECT_EQ(edges.error().code, ErrorCode::kResourceLimit);
  const auto bytes =
      HeaderScanner({}, {.file_bytes = 3}).scan(input_, toolkit_folders_);
  EXPECT_THAT(bytes,
              test::IsError(ErrorCode::kResourceLimit, testing::HasSubstr("0.h")));
  EXPECT_THAT(
      HeaderScanner({}, {.bytes = 100}).scan(input_, toolkit_folders_),
      test::IsError(ErrorCode::kResourceLimit, testing::HasSubstr("over 100 bytes")));
}

TEST_F(HeaderScanTest, CountsComputedIncludesToo) {
  input_.source = "#include X\n#include X\n#include X\n";
  EXPECT_EQ(HeaderScanner({}, {.edges = 2}).scan(input_, {}).error().code,
            ErrorCode::kResourceLimit);
}

TEST_F(HeaderScanTest, GuessesOnlySoOften) {
  write(one_ / "a.h", "");
  write(one_ / "b.h", "");
  input_.macros = {{MacroAction::kDefine, "A=<a.h>"},
                   {MacroAction::kDefine, "B=<b.h>"}};
  input_.source = "#include X\n";
  const auto files = [this](std::size_t guesses) {
    const auto scan = HeaderScanner({}, {.guesses = guesses}).scan(input_, {});
    return scan ? scan->headers->files.size() : 99;
  };
  EXPECT_EQ(files(0), 0U);
  EXPECT_EQ(files(1), 1U);
  EXPECT_EQ(files(100), 2U);
}

TEST_F(HeaderScanTest, EndsWhenItIsStopped) {
  write(toolkit_ / "cuda.h", "");
  std::stop_source stop;
  stop.request_stop();
  for (const char* const source : {"", "int i;", "#include <cuda.h>"}) {
    input_.source = source;
    const auto stopped =
        HeaderScanner({}).scan(input_, toolkit_folders_, {}, later(), stop.get_token());
    EXPECT_THAT(stopped, test::IsError(ErrorCode::kCancelled)) << source;
  }
}

TEST_F(HeaderScanTest, DoesNotRememberAFileWhoseSizeSaysNothing) {
  std::error_code none;
  if (fs::file_size("/proc/version", none) != 0)
    GTEST_SKIP() << "no file here has more bytes than its size";
  write(one_ / "empty.h", "");
  input_.source = "#include \"/proc/version\"\n#include <empty.h>";
  const HeaderScanner scanner(memo_);
  EXPECT_EQ(scan_with(scanner).stats.memo, MemoWrite::kNotNeeded);
  const HeaderScan again = scan_with(scanner);
  EXPECT_EQ(again.stats.files_read, 2U);
  ASSERT_EQ(again.headers->files.size(), 2U);
  const HeaderFile& version = again.headers->files[0];
  EXPECT_FALSE(version.settled);
  EXPECT_THAT(version.varies, testing::HasSubstr("where the file system says 0"));
  EXPECT_NE(version.content, Digest::of({}));
  EXPECT_FALSE(again.headers->files[1].settled);
  EXPECT_EQ(again.headers->files[1].varies, "");
}

TEST_F(HeaderScanTest, NoticesWhoNamesTheTimeOfTheBuild) {
  const auto varying = [this] {
    const HeaderSnapshot headers = *scan().headers;
    return headers.varying ? headers.varying->name + ", " + headers.varying->reason
                           : std::string();
  };
  const std::string reason =
      ", which names __TIME__ in line 1: each build gives it another value";
  input_.source = "int a[__TIME__[0]];";
  EXPECT_EQ(varying(), "kernel.cu" + reason);
  input_.source = "";
  input_.macros = {{MacroAction::kDefine, "T=__TIME__"}};
  EXPECT_EQ(varying(), "-DT=__TIME__" + reason);
  input_.macros = {{MacroAction::kDefine, "__TIME__=1"}};
  EXPECT_EQ(varying(), "");
  input_.name_expressions = {"f<__TIME__[0]>"};
  EXPECT_EQ(varying(), "f<__TIME__[0]>" + reason);
}

TEST_F(HeaderScanTest,
       NoticesAHeaderInMemoryThatNamesTheTimeOfTheBuildIfItIsReachable) {
  write(toolkit_ / "cuda.h", "#include <m.h>");
  input_.memory_headers = {{"m.h", "__DATE__"}};
  input_.source = "int i;";
  EXPECT_FALSE(scan().headers->varying);
  for (const char* const source :
       {"#include <m.h>", "#include <cuda.h>", "#include STR(m.h)"}) {
    input_.source = source;
    const HeaderSnapshot headers = *scan().headers;
    ASSERT_TRUE(headers.varying) << source;
    EXPECT_EQ(headers.varying->name, "m.h");
  }
}

TEST_F(HeaderScanTest, RemembersWhichHeaderNamesTheTimeOfTheBuild) {
  if (const auto why = test::why_no_memo(dir_.path()); !why.empty())
    GTEST_SKIP() << why;
  write(one_ / "a.h", "\n__TIMESTAMP__");
  input_.source = "#include <a.h>";
  const HeaderScan first = scan();
  const HeaderScan other_process = scan();
  EXPECT_EQ(other_process.stats.files_read, 0U);
  for (const HeaderScan& scan : {first, other_process}) {
    EXPECT_FALSE(scan.headers->varying) << "the compiler may not read it";
    EXPECT_THAT(scan.headers->files[0].varies,
                testing::HasSubstr("names __TIMESTAMP__ in line 2"));
  }
}

TEST_F(HeaderScanTest, PassesOverWhatIsNoFile) {
  ASSERT_EQ(::mkfifo((one_ / "a.h").c_str(), 0600), 0);
  write(two_ / "a.h", "");
  input_.source = "#include <a.h>";
  EXPECT_EQ(scan().headers->files[0].path, two_ / "a.h");
}

TEST_F(HeaderScanTest, PassesOverWhatMayNotBeRead) {
  if (::geteuid() == 0)
    GTEST_SKIP() << "root may read everything";
  write(one_ / "a.h", "");
  fs::permissions(one_ / "a.h", fs::perms::none);
  write(two_ / "a.h", "");
  input_.source = "#include <a.h>";
  EXPECT_EQ(scan().headers->files[0].path, two_ / "a.h");
}

TEST_F(HeaderScanTest, ReadsAHeaderOnceInAProcessAndOnceOnADisk) {
  if (const auto why = test::why_no_memo(dir_.path()); !why.empty())
    GTEST_SKIP() << why;
  write(one_ / "a.h", "#include \"b.h\"\n#define H \"c.h\"\n#include X(y)");
  write(one_ / "b.h", "b");
  input_.source = "#include <a.h>";
  const HeaderScanner scanner(memo_);
  const HeaderScan first = scan_with(scanner);
  EXPECT_EQ(first.stats.files_read, 2U);
  EXPECT_EQ(first.stats.memo, MemoWrite::kWritten);
  const HeaderScan second = scan_with(scanner);
  EXPECT_EQ(second.stats.files_read, 0U);
  const HeaderScan other_process = scan();
  EXPECT_EQ(other_process.stats.files_read, 0U);
  EXPECT_EQ(other_process.stats.memo, MemoWrite::kNotNeeded);
  EXPECT_EQ(second.headers->fields, first.headers->fields);
  EXPECT_EQ(other_process.headers->fields, first.headers->fields);
  EXPECT_EQ(other_process.headers->computed.size(), first.headers->computed.size());
}

TEST_F(HeaderScanTest, ReadsAgainWhatWasJustWritten) {
  write(one_ / "a.h", "1");
  input_.source = "#include <a.h>";
  const HeaderScanner scanner(memo_);
  EXPECT_EQ(scanner.scan(input_, toolkit_folders_)->stats.files_read, 1U);
  const auto again = scanner.scan(input_, toolkit_folders_);
  EXPECT_EQ(again->stats.files_read, 1U);
  EXPECT_EQ(again->stats.memo, MemoWrite::kNotNeeded);
}

TEST_F(HeaderScanTest, ReadsAgainWhereTheMemoIsDamaged) {
  if (const auto why = test::why_no_memo(dir_.path()); !why.empty())
    GTEST_SKIP() << why;
  write(one_ / "a.h", "1");
  input_.source = "#include <a.h>";
  const Fields before = fields();
  const fs::path memo = fs::directory_iterator(memo_)->path();
  const Bytes payload = *read_memo(memo_, memo.filename().native());
  for (std::size_t size = 0; size < payload.size(); ++size) {
    std::ignore =
        write_memo(memo_, memo.filename().native(), ByteView(payload).first(size));
    EXPECT_EQ(fields(), before);
  }
  write(memo, "garbage");
  EXPECT_EQ(fields(), before);
}

TEST_F(HeaderScanTest, ReadsOnceInEachProcessWhereStampsSayTooLittle) {
  std::string name = "/dev/shm/kiln-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr)
    GTEST_SKIP() << "there is no tmpfs at /dev/shm";
  const fs::path folder = name;
  write(folder / "own/a.h", "own");
  write(folder / "toolkit/t.h", "#include <x.h>");
  input_.include_dirs = {folder / "own"};
  toolkit_folders_ = {folder / "toolkit"};
  input_.source = "#include <a.h>\n#include <t.h>";
  const HeaderScanner one(memo_);
  const HeaderScanner other(memo_);
  const HeaderScan first = scan_with(one);
  for (const HeaderScan& scan : {first, scan_with(other)}) {
    EXPECT_EQ(scan.stats.files_read, 1U);
    EXPECT_EQ(scan.stats.toolkit_read, 1U);
    EXPECT_EQ(scan.stats.memo, MemoWrite::kNotNeeded);
    EXPECT_EQ(scan.stats.toolkit_memo, MemoWrite::kNotNeeded);
    EXPECT_EQ(scan.headers->fields, first.headers->fields);
  }
  const HeaderScan again = scan_with(one);
  EXPECT_EQ(again.stats.files_read, 0U);
  EXPECT_EQ(again.stats.toolkit_read, 0U);
  EXPECT_EQ(again.headers->fields, first.headers->fields);
  write(folder / "toolkit/u.h", "");
  EXPECT_NE(scan_with(one).headers->fields, first.headers->fields);
  fs::remove_all(folder);
}

TEST_F(HeaderScanTest, MergesWithWhatOthersRemembered) {
  if (const auto why = test::why_no_memo(dir_.path()); !why.empty())
    GTEST_SKIP() << why;
  write(one_ / "a.h", "1");
  write(one_ / "b.h", "2");
  const HeaderScanner first(memo_);
  const HeaderScanner second(memo_);
  input_.source = "#include <a.h>";
  scan_with(first);
  input_.source = "#include <b.h>";
  scan_with(second);
  input_.source = "#include <a.h>\n#include <b.h>";
  EXPECT_EQ(scan().stats.files_read, 0U);
}

TEST_F(HeaderScanTest, ServesThreadsAtOnce) {
  for (int i = 0; i < 30; ++i)
    write(one_ / (std::to_string(i) + ".h"),
          "#include \"" + std::to_string((i * 7 + 1) % 30) + ".h\"");
  write(toolkit_ / "cuda.h", "");
  input_.source = "#include \"0.h\"\n#include <cuda.h>";
  const Fields expected = fields();
  const HeaderScanner scanner(memo_);
  test::in_threads(4, [&] {
    for (int round = 0; round < 10; ++round)
      EXPECT_EQ(scanner.scan(input_, toolkit_folders_)->headers->fields, expected);
  });
}

TEST_F(HeaderScanTest, WantsANormalizedInputAndAnAbsoluteToolkit) {
  input_.options = {"-I/x"};
  EXPECT_EQ(HeaderScanner({}).scan(input_, toolkit_folders_).error().code,
            ErrorCode::kInvalidArgument);
  input_.options = {};
  toolkit_folders_ = {"toolkit"};
  EXPECT_EQ(HeaderScanner({}).scan(input_, toolkit_folders_).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_TRUE(HeaderScanner({}).scan(input_, {}));
  input_.source = "#include <cuda.h>";
  toolkit_folders_ = {dir_.path() / "no toolkit"};
  EXPECT_TRUE(HeaderScanner({}).scan(input_, toolkit_folders_));
}

}  // namespace
}  // namespace kiln::key
