// That the model loses what it must, and that the checker would say so.

#include "tests/fault/power_loss/crash_states.h"

#include <set>
#include <string>

#include "tests/fault/power_loss/crash_checker.h"
#include "tests/support/sample_object.h"
#include "tests/support/test.h"

namespace kiln::test {
namespace {

using Kind = Operation::Kind;
using testing::IsSupersetOf;

constexpr std::size_t kCombinations = 256;

Bytes bytes(std::string_view text) {
  const ByteView view = as_bytes(text);
  return {view.begin(), view.end()};
}

/// "name=content ..." of each state, after all of `log`, no folders.
std::set<std::string> outcomes(const Disk& before, const Log& log) {
  std::set<std::string> all;
  for_each_crash_state(before, log, kCombinations, [&](const CrashState& state) {
    std::string text;
    for (const auto& [name, number] : state.disk.names)
      text +=
          name + "=" + std::string(as_text(state.disk.files.at(number).bytes)) + " ";
    all.insert(text);
  });
  return all;
}

Operation create(FileNumber file, const std::string& name) {
  return {.kind = Kind::kCreate, .file = file, .name = name};
}
Operation write(FileNumber file, std::string_view text) {
  return {.kind = Kind::kWrite, .file = file, .bytes = bytes(text)};
}
Operation sync(FileNumber file) {
  return {.kind = Kind::kSyncFile, .file = file};
}
Operation sync_root() {
  return {.kind = Kind::kSyncFolder};
}
Operation rename(FileNumber file, const std::string& from, const std::string& to) {
  return {.kind = Kind::kRename, .file = file, .name = from, .to = to};
}

TEST(CrashStates, ANameMayBeLostAlthoughItsFileWasSynced) {
  EXPECT_THAT(outcomes({}, {create(1, "a"), write(1, ""), sync(1)}),
              UnorderedElementsAre("", "a= "));
}

TEST(CrashStates, WhatWasNotSyncedMayBeMissingZeroedOrStale) {
  Disk before;
  before.add("b", bytes("old"));
  EXPECT_THAT(
      outcomes(before, {create(1, "a"), write(1, "new")}),
      IsSupersetOf<std::string>({"b=old ", "a= b=old ", "a=new b=old ",
                                 std::string("a=\0\0\0 b=old ", 12), "a=old b=old "}));
}

TEST(CrashStates, ASyncedFileIsWhole) {
  const Log log{create(1, "a"), write(1, "new"), sync(1)};
  for_each_crash_state({}, log, kCombinations, [&](const CrashState& state) {
    const File* const file = state.disk.find("a");
    const bool whole = file != nullptr && as_text(file->bytes) == "new";
    EXPECT_TRUE(file == nullptr || whole || state.operations < log.size());
  });
}

TEST(CrashStates, ARenameMayOvertakeTheData) {
  Disk before;
  before.add("a", bytes("old"));
  const Log careless{create(1, "t"), write(1, "new"), rename(1, "t", "a")};
  EXPECT_THAT(outcomes(before, careless), Contains("a= "));
  const Log careful{create(1, "t"), write(1, "new"), sync(1), rename(1, "t", "a")};
  EXPECT_THAT(outcomes(before, careful), Not(Contains("a= ")));
  EXPECT_THAT(outcomes(before, careful),
              IsSupersetOf<std::string>({"a=old ", "a=new "}));
}

TEST(CrashStates, ASyncOfTheFolderEndsAllDoubt) {
  std::set<std::size_t> named;
  const Log log{create(1, "t"), write(1, "new"), sync(1), rename(1, "t", "a"),
                sync_root()};
  for_each_crash_state({}, log, kCombinations, [&](const CrashState& state) {
    if (state.operations == log.size())
      named.insert(state.disk.names.count("a") + 10 * state.disk.names.count("t"));
  });
  EXPECT_THAT(named, Each(1U));
}

TEST(CrashStates, WhatIsInALostFolderIsLost) {
  const Log log{{.kind = Kind::kMakeFolder, .name = "f"}, create(1, "f/a")};
  for_each_crash_state({}, log, kCombinations, [&](const CrashState& state) {
    EXPECT_TRUE(state.disk.folders.contains("f") || state.disk.names.empty());
  });
  EXPECT_THAT(outcomes({}, log), UnorderedElementsAre("", "f/a= "));
}

TEST(CrashStates, OfManyNamesASampleOfSubsetsIsVisitedAndAlwaysTheSame) {
  Log log;
  for (FileNumber file = 1; file <= 12; ++file)
    log.push_back(create(file, "f" + std::to_string(file)));
  const auto once = outcomes({}, log);
  EXPECT_GT(once.size(), kCombinations);
  EXPECT_LT(once.size(), 4096U);
  EXPECT_EQ(once, outcomes({}, log));
}

// A whole object, of the right key, with bytes that nobody published: no check of the
// cache can see that, only the table can.
TEST(CrashChecker, SeesAHitWithOtherBytesThanTheTable) {
  const ReferenceTable table(1);
  SampleObject other(0, "not what the table has");
  const auto object = cache::StoredObject::make(*other).value();
  CrashState state;
  state.disk.folders = {
      {"objects", 0}, {"objects/v1", 0}, {folder_of(table.path(0)), 0}};
  state.disk.add(table.path(0), Bytes(object.file().begin(), object.file().end()));
  CrashChecker checker(table);
  checker.check(state);
  EXPECT_EQ(checker.report().wrong, 1U);
}

TEST(CrashChecker, SeesANameWithoutItsObject) {
  const ReferenceTable table(1);
  CrashState state;
  state.disk.folders = {
      {"objects", 0}, {"objects/v1", 0}, {folder_of(table.path(0)), 0}};
  state.disk.add(table.path(0), {});
  CrashChecker checker(table);
  checker.check(state);
  EXPECT_EQ(checker.report().torn, 1U);
  EXPECT_EQ(checker.report().wrong, 0U);
  EXPECT_EQ(checker.report().failed, 0U);
}

}  // namespace
}  // namespace kiln::test
