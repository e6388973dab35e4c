// Scans of one process: which of them search for headers again.

#include "key/scan_memo.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "header_trees.h"
#include "tests/support/test.h"

namespace kiln::key {
namespace {

using test::write;
using ScanMemoTest = HeaderScanTest;

TEST_F(ScanMemoTest, SearchesOnceForSourcesWithTheSameIncludes) {
  if (const auto why = test::why_no_memo(dir_.path()); !why.empty())
    GTEST_SKIP() << why;
  write(two_ / "a.h", "#include \"b.h\"\n");
  write(two_ / "b.h", "1");
  input_.program_name = "/tmp/1/a.cu";
  input_.source = "#include <a.h>\nint first;";
  const HeaderScanner scanner(memo_);
  const auto first = scan_with(scanner).headers;
  EXPECT_EQ(scan_with(scanner).headers, first);
  input_.program_name = "/tmp/2/b.cu";
  input_.source = "// Another.\n#include <a.h>\nint second;";
  EXPECT_EQ(scan_with(scanner).headers, first);

  write(two_ / "b.h", "2");
  const auto changed = scan_with(scanner).headers;
  EXPECT_NE(changed->fields, first->fields);
  write(one_ / "a.h", "3");  // found before the other
  const auto appeared = scan_with(scanner).headers;
  EXPECT_NE(appeared->fields, changed->fields);
  EXPECT_EQ(scan_with(scanner).headers, appeared);
  fs::remove(one_ / "a.h");
  EXPECT_EQ(scan_with(scanner).headers->fields, changed->fields);
}

TEST_F(ScanMemoTest, SearchesAgainForWhateverASearchDependsOn) {
  if (const auto why = test::why_no_memo(dir_.path()); !why.empty())
    GTEST_SKIP() << why;
  write(one_ / "a.h", "1");
  write(two_ / "a.h", "2");
  write(dir_.path() / "near" / "a.h", "3");
  write(dir_.path() / "here" / "a.h", "6");
  input_.source = "#include <a.h>\n";
  const HeaderScanner scanner(memo_);
  const auto with = [&](auto change) {
    const SourceKeyInput before = input_;
    change(input_);
    const Fields reused = scan_with(scanner).headers->fields;
    EXPECT_EQ(reused, fields()) << input_.source;
    input_ = before;
    return reused;
  };
  const Fields plain = with([](SourceKeyInput&) {});
  const std::vector<std::function<void(SourceKeyInput&)>> changes{
      [](SourceKeyInput& input) { input.source += "#include <b.h>\n"; },
      [](SourceKeyInput& input) {
        std::swap(input.include_dirs[0], input.include_dirs[1]);
      },
      [&](SourceKeyInput& input) {
        input.source = "#include \"a.h\"\n";
        input.program_name = dir_.path() / "near" / "k.cu";
      },
      [](SourceKeyInput& input) { input.options = {"--pre-include=b.h"}; },
      [&](SourceKeyInput& input) {
        input.source = "#include \"a.h\"\n";
        input.form = SourceForm::kNvrtc;
        input.working_directory = dir_.path() / "here/";
      },
      [](SourceKeyInput& input) {
        input.memory_headers = {{"a.h", "4"}};
      },
      [](SourceKeyInput& input) {
        input.memory_headers = {{"a.h", "5"}};
      },
      [](SourceKeyInput& input) {
        input.source += "#include H\n";
        input.macros = {{MacroAction::kDefine, "H=<h.h>"}};
      }};
  std::vector<Fields> all{plain};
  for (const auto& change : changes) {
    all.push_back(with(change));
    EXPECT_EQ(std::ranges::count(all, all.back()), 1) << all.size();
  }
  // What changes no field may change what else a scan says.
  const auto names_program = [&](auto change) {
    const SourceKeyInput before = input_;
    change(input_);
    const bool names = scan_with(scanner).headers->names_program;
    input_ = before;
    return names;
  };
  EXPECT_FALSE(names_program([](SourceKeyInput&) {}));
  EXPECT_TRUE(names_program([](SourceKeyInput& input) {
    input.macros = {{MacroAction::kDefine, "F=__FILE__"}};
  }));
  EXPECT_TRUE(names_program(
      [](SourceKeyInput& input) { input.name_expressions = {"f<__FILE__>"}; }));
  EXPECT_FALSE(names_program([](SourceKeyInput&) {}));
  input_.source += "const char* p = __FILE__;";
  EXPECT_TRUE(scan_with(scanner).headers->names_program);
  input_.source += "const char* t = __TIME__;";
  EXPECT_TRUE(scan_with(scanner).headers->varying);
}

}  // namespace
}  // namespace kiln::key
