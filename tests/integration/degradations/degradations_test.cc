// Whatever Kiln does worse than it could is counted where it happens, and `kiln stats`
// tells it: one row a counter, each brought about by real means.

#include <functional>
#include <map>
#include <set>

#include "tests/integration/degradations/ways.h"
#include "tests/support/print_name.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

namespace header = cache::header;
using test::Place;
using test::PrintTo;
using Counts = std::map<std::string, std::uint64_t>;

constexpr std::uint64_t kAnyNumber = 0;

/// What is no degradation: a cache at its best counts these as well.
const std::set<std::string> kOrdinary{
    "hits",     "misses",   "published", "already_there", "compiled",   "lock_waited",
    "pch_made", "pch_used", "seed_hits", "remote_hits",   "memory_hits"};

/// What remotes were asked is counted under names that are made at run time.
bool is_degradation(const std::string& name) {
  return !kOrdinary.contains(name) && !name.starts_with("remote_");
}

struct Row {
  const char* name;
  Counts counts;  // all degradations that are counted, and how often
  std::function<void(Place&)> bring_about;
};

// NOLINTNEXTLINE(readability-function-size): it is a table
const std::vector<Row>& rows() {
  static const std::vector<Row> all{
      {"HolderWithoutAHeartbeat", {{"lock_bypassed", 1}}, test::hold_lock},
      {"SlotHolderWithoutAHeartbeat", {{"slot_holder_ignored", 1}}, test::hold_slot},
      {"NotStored", {{"publish_refused.EDQUOT", 1}}, test::fail_a_sync},
      {"NoFolderForAnObject", {{"untrusted", 1}}, test::plant_a_file},
      {"Shorter",
       {{"corrupt.size", 1}, {"quarantined", 1}},
       [](Place& place) {
         place.build_damaged([](Bytes& b) { b.resize(b.size() - 1); });
       }},
      {"AnotherBeginning",
       {{"corrupt.magic", 1}, {"quarantined", 1}},
       [](Place& place) {
         place.build_damaged([](Bytes& b) { b[0] ^= std::byte{1}; });
       }},
      {"AnotherFormat",
       {{"corrupt.format", 1}, {"quarantined", 1}},
       [](Place& place) {
         place.build_damaged(
             [](Bytes& b) { test::store_le(b, header::kVersion, std::uint32_t{99}); });
       }},
      {"AFlippedByte",
       {{"corrupt.checksum", 1}, {"quarantined", 1}},
       [](Place& place) {
         const std::string key = place.build();
         Bytes file = place.bytes_of(key);
         file[header::kBytes + 100] ^= std::byte{1};
         place.replace(key, file);
         EXPECT_EQ(place.build(), key);
       }},
      {"AnImpossibleField",
       {{"corrupt.header", 1}, {"quarantined", 1}},
       [](Place& place) {
         place.build_damaged(
             [](Bytes& b) { test::store_le(b, header::kKind, std::uint64_t{99}); });
       }},
      {"AnotherKey", {{"corrupt.key", 1}, {"quarantined", 1}}, test::serve_another_key},
      {"AnotherArchitecture",
       {{"corrupt.target", 1}, {"quarantined", 1}},
       test::serve_another_target},
      {"AnotherArchitectureInTheElfFlags",
       {{"corrupt.payload", 1}, {"quarantined", 1}},
       [](Place& place) {
         place.build_damaged([](Bytes& b) {  // e_flags: SM 9.0 becomes 7.5
           b[header::kBytes + 48] = b[header::kBytes + 49] = std::byte{75};
         });
       }},
      {"ADamagedNumberInTheMetadata",
       {{"corrupt.metadata", 1}, {"quarantined", 1}},
       [](Place& place) {
         place.verify_damaged([](Bytes& b) {
           b[test::find(b, "compile_ms") + std::string_view("compile_ms").size()] =
               std::byte{'x'};
         });
       }},
      {"AForeignPayload",
       {{"corrupt.payload_digest", 1}, {"quarantined", 1}},
       [](Place& place) {
         place.verify_damaged(
             [](Bytes& b) { b[header::kPayloadDigest] ^= std::byte{1}; });
       }},
      {"AForeignPreimage",
       {{"corrupt.preimage_digest", 1}, {"quarantined", 1}},
       test::find_a_foreign_preimage},
      {"ADamagedSource",
       {{"corrupt.sections", 1}, {"quarantined", 1}},
       [](Place& place) {
         place.verify_damaged([](Bytes& b) {  // where zstd says that it is zstd
           b[header::decode(b, b.size()).value().sections[4].offset] ^= std::byte{1};
         });
       }},
      // Looked at three times: for a hit, under the lock, and where it was to be
      // stored.
      {"AnObjectThatOthersCanWrite", {{"untrusted", 3}}, test::let_others_write},
      {"AnObjectThatCannotBeRead", {{"unreadable", 1}}, test::fail_to_read},
      {"TwoBuildsThatDiffer", {{"nondeterministic", 1}}, test::build_otherwise},
      {"AnotherCompilerThanInTheKey",
       {{"toolchain_not_as_keyed", 1}},
       test::replace_the_compiler},
      {"AHeaderThatIsNotInTheKey",
       {{"inputs_not_as_keyed", 1}},
       test::include_what_a_macro_names},
      {"AnIndexThatIsNone", {{"index_rebuilt", 1}}, test::write_over_the_index},
      {"NoPlaceForTheIndex",
       {{"index_failed", kAnyNumber}, {"untrusted", kAnyNumber}},
       test::put_a_folder_for_the_index},
      {"OverTheLimit", {{"evicted", 1}}, test::trim_to_nothing},
      {"LeftByCrashes", {{"temporaries_swept", 2}}, test::leave_temporaries},
      {"AFullQuarantine", {{"quarantine_swept", 3}}, test::fill_the_quarantine},
      {"ACompilerThatHangs",
       {{"worker_killed", 1}},
       [](Place& place) { test::compile_with(place, "hang"); }},
      {"ACompilerThatCrashes",
       {{"worker_crashed", 1}},
       [](Place& place) { test::compile_with(place, "crash"); }},
      {"ACompilerThatLies",
       {{"compile_failed", 1}},
       [](Place& place) { test::compile_with(place, "wrong-arch"); }},
      {"ACompilerThatCrashesWhenAskedWhatItIs",
       {{"worker_crashed", 1}},
       test::ask_a_compiler_that_crashes},
      {"NoPrecompiledHeaderByThisCompiler",
       {{"pch_refused", 1}},
       test::ask_for_a_precompiled_header},
      {"ASeedThatIsNoPack", {{"seed_refused", 1}}, test::seed_with_a_file},
      {"ARemoteThatIsNotThere", {{"uploads_dropped", 1}}, test::upload_to_nobody},
      {"ALockThatTheHostHasClosed",
       {{"descriptors_lost", 1}},
       test::close_descriptors_of_a_lock},
      // Whoever killed two workers is refused: no third one is lost, and none counted.
      {"ASourceThatKilledTwoWorkers",
       {{"worker_crashed", 2}, {"build_refused", 1}},
       test::ask_three_times},
  };
  return all;
}

class DegradationTest : public testing::TestWithParam<Row> {};

TEST_P(DegradationTest, IsCountedWhereItHappensAndTold) {
  Place place;
  GetParam().bring_about(place);
  if (IsSkipped() || HasFatalFailure())
    return;
  place.kiln().use_fake_nvrtc();
  const auto stats = place.kiln().json_of({"stats"});
  Counts counted;
  for (const auto& [name, count] : stats["counters"].items()) {
    if (is_degradation(name))
      counted[name] = count.get<std::uint64_t>();
  }
  Counts expected = GetParam().counts;
  for (auto& [name, count] : expected) {
    if (count == kAnyNumber)
      count = counted[name];
    EXPECT_GT(count, 0U) << name;
  }
  EXPECT_EQ(counted, expected);
  const auto table = place.kiln().run({"stats"}).out;
  for (const auto& [name, count] : expected)
    EXPECT_NE(table.find(name), std::string::npos) << table;
}

INSTANTIATE_TEST_SUITE_P(Table, DegradationTest, testing::ValuesIn(rows()),
                         [](const auto& test) { return test.param.name; });

TEST(Degradations, HaveARowEach) {
  cache::Counters counters;
  for (std::size_t i = 0; i < cache::kCounterCount; ++i)
    counters.add(static_cast<cache::Counter>(i));
  for (std::size_t i = 0; i < cache::kCheckCount; ++i)
    counters.add_corrupt(static_cast<cache::Check>(i));
  std::set<std::string> tried;
  for (const Row& row : rows()) {
    for (const auto& [name, count] : row.counts) tried.insert(name);
  }
  for (const auto& [name, count] : counters.snapshot()) {
    if (is_degradation(name)) {
      EXPECT_THAT(tried, Contains(name));
    }
  }
}

}  // namespace
}  // namespace kiln
