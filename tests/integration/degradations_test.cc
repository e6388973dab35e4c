// Whatever Kiln does worse than it could is counted where it happens, and `kiln stats`
// tells it: one row a counter, each brought about by real means.

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "tests/support/compile_jobs.h"
#include "tests/support/damaged_object.h"
#include "tests/support/fault/syscall_tracer.h"
#include "tests/support/program.h"
#include "tests/support/sample_object.h"
#include "tests/support/service_requests.h"
#include "util/elf.h"
#include "util/read_file.h"
#include "util/unique_fd.h"

namespace kiln {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
namespace fs = std::filesystem;
namespace header = cache::header;
using Counts = std::map<std::string, std::uint64_t>;

constexpr std::uint64_t kAnyNumber = 0;

/// What is no degradation: a cache at its best counts these as well.
const std::set<std::string> kOrdinary{"hits",          "misses",   "published",
                                      "already_there", "compiled", "lock_waited"};

/// A cache root, the program on it, and what can happen to both.
class Place {
 public:
  Place() { kiln_.use_fake_nvrtc(); }

  test::KilnProgram& kiln() { return kiln_; }
  [[nodiscard]] fs::path root() const { return kiln_.cache_dir(); }
  [[nodiscard]] cache::Layout layout() const { return cache::Layout(root()); }
  [[nodiscard]] fs::path object(const std::string& key) const {
    return layout().object(cache::Digest::from_hex(key).value());
  }

  std::string build(const char* arch = "9.0") {
    return kiln_.compiled(test::kTinySource, arch);
  }
  /// As build(), where it is not expected to go well.
  void try_to_build(const test::KilnProgram::Arguments& more = {}) {
    test::KilnProgram::Arguments arguments{
        "compile", kiln_.write("source.cu", test::kTinySource), "--arch", "9.0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_NE(kiln_.run(arguments).status, 0);
  }

  /// Writes over an object's file.
  void replace(const std::string& key, ByteView bytes) const {
    const fs::path path = object(key);
    fs::remove(path);
    std::ofstream(path, std::ios::binary) << as_text(bytes);
    fs::permissions(path, fs::perms::owner_read);
  }
  [[nodiscard]] Bytes bytes_of(const std::string& key) const {
    return read_file(object(key), 1U << 20U).value().value();
  }
  /// Builds, changes a field so that the checksum fits, and asks for it again.
  void build_damaged(const std::function<void(Bytes&)>& damage) {
    const std::string key = damaged(damage);
    EXPECT_EQ(build(), key);
  }
  /// As build_damaged(), for what only `verify` looks at.
  void verify_damaged(const std::function<void(Bytes&)>& damage) {
    damaged(damage);
    EXPECT_EQ(kiln_.run({"verify", "--quarantine"}).status, 1);
  }
  void age(const fs::path& path) const {
    fs::last_write_time(path, fs::file_time_type::clock::now() - 2h);
  }

  /// Holds a place that this test's process took and says nothing about, as a process
  /// that was stopped an hour ago would.
  [[nodiscard]] UniqueFd hold_silently(const fs::path& file, std::uint64_t record,
                                       const cache::Digest& key) const {
    cache::FileSystem& files = cache::real_file_system();
    EXPECT_EQ(cache::make_folders(files, file.parent_path()), 0);
    UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    cache::OwnerRecord owner;
    owner.pid = ::getpid();
    owner.key = key;
    owner.phase = cache::Phase::kCompiling;
    owner.started = owner.phase_started = owner.heartbeat = cache::boot_time_now() - 1h;
    owner.build_limit = 24h;
    const std::uint64_t offset = record * cache::kOwnerRecordBytes;
    EXPECT_GT(files.pwrite(fd.get(), owner.encode(), offset), 0);
    EXPECT_EQ(files.set_lock(fd.get(), cache::RangeLock::kExclusive, offset,
                             cache::kOwnerRecordBytes),
              0);
    return fd;
  }

  /// A service in this process, with the fake compiler in this mode.
  [[nodiscard]] Config config(const char* mode) const {
    ::setenv("KILN_FAKE_NVRTC", mode, 1);  // NOLINT(concurrency-mt-unsafe)
    Config made = test::service_config(root());
    made.nvrtc = KILN_TEST_FAKE_NVRTC;
    return made;
  }

 private:
  std::string damaged(const std::function<void(Bytes&)>& damage) {
    const std::string key = build();
    Bytes file = bytes_of(key);
    damage(file);
    test::repair_checksum(file);
    replace(key, file);
    return key;
  }

  test::KilnProgram kiln_;
};

/// Where `text` stands in the part of an object behind its payload.
std::size_t find(const Bytes& file, std::string_view text) {
  const std::size_t at = as_text(file).rfind(text);
  EXPECT_NE(at, std::string_view::npos) << text;
  return at;
}

void hold_lock(Place& place) {
  const std::string key = place.build();
  fs::remove(place.object(key));
  const auto digest = cache::Digest::from_hex(key).value();
  const auto byte = [&](std::size_t i) {
    return std::to_integer<std::uint64_t>(digest.bytes()[i]);
  };
  const UniqueFd held = place.hold_silently(place.layout().locks() / key.substr(0, 2),
                                            (byte(1) << 8U | byte(2)) % 4096, digest);
  EXPECT_EQ(place.build(), key);
}

void hold_slot(Place& place) {
  fs::create_directories(place.root());
  fs::permissions(place.root(), fs::perms::owner_all);
  const UniqueFd held = place.hold_silently(place.layout().locks() / "slots", 0, {});
  place.kiln().set("KILN_JOBS", "1");
  place.build();
}

void refuse_a_folder(Place& place) {
  const std::string key = place.build();
  const fs::path folder = place.object(key).parent_path();
  fs::remove_all(folder);
  std::ofstream(folder) << "a file in its place";
  place.try_to_build();
}

void serve_another_key(Place& place) {
  const std::string key = place.build();
  place.replace(key, place.bytes_of(place.build("8.0")));
  EXPECT_EQ(place.build(), key);
}

/// The object of another architecture, with this one's key written into it.
Bytes of_another_architecture(Place& place, const std::string& key) {
  Bytes file = place.bytes_of(place.build("8.0"));
  const auto digest = cache::Digest::from_hex(key).value();
  test::store_bytes(file, header::kKey, digest.bytes());
  test::repair_checksum(file);
  return file;
}

void serve_another_target(Place& place) {
  const std::string key = place.build();
  place.replace(key, of_another_architecture(place, key));
  EXPECT_EQ(place.build(), key);
}

void find_a_foreign_preimage(Place& place) {
  const std::string key = place.build();
  place.replace(key, of_another_architecture(place, key));
  EXPECT_EQ(place.kiln().run({"verify", "--quarantine"}).status, 1);
}

void let_others_write(Place& place) {
  const std::string key = place.build();
  ASSERT_EQ(::chmod(place.object(key).c_str(), 0666), 0);
  place.try_to_build();
}

void fail_to_read(Place& place) {
  if (!test::can_trace())
    GTEST_SKIP() << "NOT TESTED: no process can be traced here";
  const std::string key = place.build();
  const auto body = [&] {
    test::begin_faults();
    cache::CacheOptions options;
    options.root = place.root();
    const auto cache = cache::Cache::open(options);
    const bool found =
        cache->find(cache::Digest::from_hex(key).value(), "sm_90").has_value();
    cache->flush(10s);
    return found ? 1 : 0;
  };
  const auto decide = [&](const test::SystemCall& call) {
    const bool of_object =
        call.number == SYS_openat && test::path_of(call).ends_with(key.substr(2));
    return of_object ? test::Fate::failed(EIO) : test::Fate{};
  };
  EXPECT_EQ(test::trace(body, decide).status, 0);
}

void build_otherwise(Place& place) {
  place.build();
  cache::CacheOptions options;
  options.root = place.root();
  const auto cache = cache::Cache::open(options);
  test::SampleObject one(1);
  test::SampleObject other(1, "\177ELF another cubin");
  EXPECT_EQ(cache->publish(*one).outcome, cache::Published::kStored);
  EXPECT_EQ(cache->publish(*other).outcome, cache::Published::kNondeterministic);
}

void replace_the_compiler(Place& place) {
  const fs::path copy = place.kiln().folder() / "libnvrtc.so.13";
  fs::copy_file(KILN_TEST_FAKE_NVRTC, copy);
  Config with_copy = place.config("");
  with_copy.nvrtc = copy;
  const auto keyed = test::keyed(*test::open_service(with_copy), test::small_kernel(1));
  ASSERT_TRUE(keyed) << keyed.error().message;
  const std::string id = read_build_id(copy).value();
  std::string raw;
  for (std::size_t i = 0; i + 1 < id.size(); i += 2)
    raw += static_cast<char>(std::stoi(id.substr(i, 2), nullptr, 16));
  std::string bytes = read_text_file(copy, 1U << 28U).value();
  const std::size_t at = bytes.find(raw);
  ASSERT_NE(at, std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  fs::remove(copy);
  std::ofstream(copy, std::ios::binary) << bytes;
  const auto fetched = test::open_service(with_copy)->fetch(*keyed);
  ASSERT_TRUE(fetched) << fetched.error().message;
  EXPECT_TRUE(fetched->not_stored);
}

void include_what_a_macro_names(Place& place) {
  if (test::real_nvrtc().nvrtc.empty())
    GTEST_SKIP() << "NOT TESTED: there is no NVRTC here";
  place.kiln().unset("KILN_NVRTC");
  place.kiln().write("include/hidden.h", "#define VALUE 1\n");
  const std::string source =
      place.kiln().write("k.cu",
                         "#define NAME(x) #x\n#include NAME(hidden.h)\n"
                         "extern \"C\" __global__ void k(int* x) { *x = VALUE; }\n");
  const auto report = place.kiln().json_of(
      {"compile", source, "--arch", "9.0", "-I", place.kiln().folder() / "include"}, 1);
  EXPECT_EQ(report["not_stored"], 1);
}

void write_over_the_index(Place& place) {
  place.build();
  std::ofstream(place.layout().index()) << std::string(10'000, 'x');
  EXPECT_EQ(place.kiln().run({"ls"}).status, 0);
}

void put_a_folder_for_the_index(Place& place) {
  place.build();
  for (const char* suffix : {"", "-journal", "-wal", "-shm"})
    fs::remove(place.layout().index().native() + suffix);
  fs::create_directories(place.layout().index() / "in the way");
  EXPECT_EQ(place.kiln().run({"ls"}).status, 0);
}

void trim_to_nothing(Place& place) {
  place.age(place.object(place.build()));
  EXPECT_EQ(place.kiln().run({"trim", "--max-size", "1"}).status, 0);
}

void leave_temporaries(Place& place) {
  const fs::path folder = place.object(place.build()).parent_path();
  for (const fs::path& where : {folder, place.root()}) {
    const std::string left = cache::Layout::temporary_in(where.native());
    std::ofstream(left) << "half an object";
    place.age(left);
  }
  EXPECT_EQ(place.kiln().run({"trim"}).status, 0);
}

void fill_the_quarantine(Place& place) {
  const std::string key = place.build();
  fs::create_directories(place.layout().quarantine());
  for (int i = 0; i < 103; ++i)
    std::ofstream(place.layout().quarantine() / fmt::format("{}-{}-size", key, i));
  EXPECT_EQ(place.kiln().run({"trim"}).status, 0);
}

/// In one process, because a refusal is of a process.
void ask_three_times(Place& place) {
  EXPECT_TRUE(
      test::keyed(*test::open_service(place.config("")), test::small_kernel(1)));
  const auto service = test::open_service(place.config("crash"));
  for (int i = 0; i < 3; ++i)
    EXPECT_FALSE(test::fetch(*service, test::small_kernel(1)));
}

void compile_with(Place& place, const char* mode) {
  place.build("8.0");  // while it answers
  place.kiln().use_fake_nvrtc(mode);
  place.try_to_build({"--timeout", "2"});
}

void ask_a_compiler_that_hangs(Place& place) {
  place.kiln().use_fake_nvrtc("crash-version");
  place.try_to_build();
}

struct Row {
  const char* name;
  Counts counts;  // all degradations that are counted, and how often
  std::function<void(Place&)> bring_about;
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's name for it
void PrintTo(const Row& row, std::ostream* out) {
  *out << row.name;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> all{
      {"HolderWithoutAHeartbeat", {{"lock_bypassed", 1}}, hold_lock},
      {"SlotHolderWithoutAHeartbeat", {{"slot_holder_ignored", 1}}, hold_slot},
      {"NotStored", {{"publish_refused.ENOTDIR", 1}}, refuse_a_folder},
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
      {"AnotherKey", {{"corrupt.key", 1}, {"quarantined", 1}}, serve_another_key},
      {"AnotherArchitecture",
       {{"corrupt.target", 1}, {"quarantined", 1}},
       serve_another_target},
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
           b[find(b, "compile_ms") + std::string_view("compile_ms").size()] =
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
       find_a_foreign_preimage},
      {"ADamagedSource",
       {{"corrupt.sections", 1}, {"quarantined", 1}},
       [](Place& place) {
         place.verify_damaged([](Bytes& b) {  // where zstd says that it is zstd
           b[header::decode(b, b.size()).value().sections[4].offset] ^= std::byte{1};
         });
       }},
      // Looked at three times: for a hit, under the lock, and where it was to be
      // stored.
      {"AnObjectThatOthersCanWrite", {{"untrusted", 3}}, let_others_write},
      {"AnObjectThatCannotBeRead", {{"unreadable", 1}}, fail_to_read},
      {"TwoBuildsThatDiffer", {{"nondeterministic", 1}}, build_otherwise},
      {"AnotherCompilerThanInTheKey",
       {{"toolchain_not_as_keyed", 1}},
       replace_the_compiler},
      {"AHeaderThatIsNotInTheKey",
       {{"inputs_not_as_keyed", 1}},
       include_what_a_macro_names},
      {"AnIndexThatIsNone", {{"index_rebuilt", 1}}, write_over_the_index},
      {"NoPlaceForTheIndex",
       {{"index_failed", kAnyNumber}},
       put_a_folder_for_the_index},
      {"OverTheLimit", {{"evicted", 1}}, trim_to_nothing},
      {"LeftByCrashes", {{"temporaries_swept", 2}}, leave_temporaries},
      {"AFullQuarantine", {{"quarantine_swept", 3}}, fill_the_quarantine},
      {"ACompilerThatHangs",
       {{"worker_killed", 1}},
       [](Place& place) { compile_with(place, "hang"); }},
      {"ACompilerThatCrashes",
       {{"worker_crashed", 1}},
       [](Place& place) { compile_with(place, "crash"); }},
      {"ACompilerThatLies",
       {{"compile_failed", 1}},
       [](Place& place) { compile_with(place, "wrong-arch"); }},
      {"ACompilerThatCrashesWhenAskedWhatItIs",
       {{"worker_crashed", 1}},
       ask_a_compiler_that_hangs},
      // Whoever killed two workers is refused: no third one is lost, and none counted.
      {"ASourceThatKilledTwoWorkers",
       {{"worker_crashed", 2}, {"build_refused", 1}},
       ask_three_times},
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
    if (!kOrdinary.contains(name))
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
    if (!kOrdinary.contains(name)) {
      EXPECT_THAT(tried, Contains(name));
    }
  }
}

}  // namespace
}  // namespace kiln
