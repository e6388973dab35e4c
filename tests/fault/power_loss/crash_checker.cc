#include "tests/fault/power_loss/crash_checker.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <random>
#include <system_error>
#include <utility>

#include "cache/counter_file.h"
#include "tests/support/sample_object.h"
#include "tests/support/test.h"

namespace kiln::test {
namespace {

using cache::Mode;
using cache::Published;

constexpr std::size_t kMostComplaints = 8;
constexpr std::size_t kPayloadBytes = 2000;
constexpr std::chrono::milliseconds kPatience{20'000};

/// Sizes that differ, so that no object fits exactly over another one.
std::string payload_of(int number) {
  std::mt19937_64 random(static_cast<std::uint64_t>(number));
  std::string payload(kPayloadBytes + 300 * static_cast<std::size_t>(number), '\0');
  for (char& byte : payload) byte = static_cast<char>(random() & 0xFFU);
  return payload;
}

}  // namespace

ReferenceTable::ReferenceTable(int count) {
  for (int number = 0; number < count; ++number) {
    SampleObject sample(number, payload_of(number));
    objects_.push_back(cache::StoredObject::make(*sample).value());
  }
}

std::optional<int> ReferenceTable::number_of(const Digest& key) const {
  for (int number = 0; number < count(); ++number) {
    if (object(number).key() == key)
      return number;
  }
  return std::nullopt;
}

std::string ReferenceTable::path(int number) const {
  const fs::path root = "/root";
  const fs::path path = cache::Layout(root).object(object(number).key());
  return path.lexically_relative(root);
}

ScratchFolder::ScratchFolder() {
  for (const std::string& parent : {std::string("/dev/shm/"), testing::TempDir()}) {
    std::string name = parent + "kiln-power-loss-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) {
      path_ = name;
      return;
    }
  }
  ADD_FAILURE() << "no folder to work in";
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

CrashReport& CrashReport::operator+=(const CrashReport& other) {
  injected += other.injected;
  wrong += other.wrong;
  failed += other.failed;
  torn += other.torn;
  lost += other.lost;
  complaints.insert(complaints.end(), other.complaints.begin(), other.complaints.end());
  return *this;
}

void print(std::string_view fact, const CrashReport& report) {
  std::printf("%.*s: injected=%zu wrong=%zu failed=%zu torn=%zu lost=%zu\n",
              static_cast<int>(fact.size()), fact.data(), report.injected, report.wrong,
              report.failed, report.torn, report.lost);
}

CrashChecker::CrashChecker(const ReferenceTable& table, std::set<int> damaged)
    : table_(table), damaged_(std::move(damaged)) {}

void CrashChecker::check(const CrashState& state) {
  const fs::path root = scratch_.path() / "root";
  state.disk.write(root);
  now_ = {};
  said_.clear();
  {
    cache::CacheOptions options;
    options.root = root;
    const auto cache = Cache::open(options);
    expect(cache->mode() == Mode::kReadWrite, cache->mode_reason());
    count(root);
    // Every other state is put right by verify, the rest by the hits.
    if (report_.injected % 2 == 0)
      find_all(*cache, state);
    verify(*cache);
    if (report_.injected % 2 != 0)
      find_all(*cache, state);
    publish_again(*cache);
    find_again(*cache, true);
    list(*cache);
    trim(*cache);
    find_again(*cache, false);
  }
  fs::remove_all(root);
  ++report_.injected;
  report_.wrong += now_.wrong ? 1 : 0;
  report_.failed += now_.failed ? 1 : 0;
  report_.torn += now_.torn ? 1 : 0;
  report_.lost += now_.lost ? 1 : 0;
  for (const std::string& said : said_) {
    if (report_.complaints.size() < kMostComplaints)
      report_.complaints.push_back(fmt::format("state {}, after {} operations: {}",
                                               report_.injected - 1, state.operations,
                                               said));
  }
}

void CrashChecker::expect(bool good, std::string_view what) {
  if (good)
    return;
  now_.failed = true;
  said_.emplace_back(what);
}

bool CrashChecker::find(Cache& cache, int number) {
  const auto found = cache.find(table_.object(number).key());
  if (!found)
    return false;
  if (as_text(found->file()) != as_text(table_.object(number).file())) {
    now_.wrong = true;
    said_.push_back(fmt::format("object {} has other bytes", number));
  }
  return true;
}

void CrashChecker::find_all(Cache& cache, const CrashState& state) {
  for (int number = 0; number < table_.count(); ++number) {
    const bool named = state.disk.find(table_.path(number)) != nullptr;
    const bool hit = find(cache, number);
    expect(named || !hit, "a hit without a file");
    if (named && !hit && !damaged_.contains(number))
      now_.torn = true;
    if (!named && state.acknowledged.contains(number))
      now_.lost = true;
  }
  expect(cache.counters().get(cache::Counter::kUntrusted) == 0, "a file is untrusted");
  expect(cache.counters().get(cache::Counter::kUnreadable) == 0,
         "a file is unreadable");
}

void CrashChecker::find_again(Cache& cache, bool must_hit) {
  for (int number = 0; number < table_.count(); ++number) {
    const bool hit = find(cache, number);
    expect(hit || !must_hit, "a miss right after a publish");
  }
}

void CrashChecker::verify(Cache& cache) {
  const auto first = cache.verify({.quarantine = cache::Quarantine::kYes});
  expect(first && first->quarantined == first->problems.size(),
         "verify leaves a problem where it is");
  if (first && first->problems.empty())
    return;
  const auto second = cache.verify({});
  expect(second && second->problems.empty(), "verify is not clean after quarantine");
}

void CrashChecker::publish_again(Cache& cache) {
  for (int number = 0; number < table_.count(); ++number) {
    const auto published = cache.publish(table_.object(number));
    expect(published.outcome == Published::kStored ||
               published.outcome == Published::kAlreadyThere,
           published.error ? published.error->message : "another build is there");
  }
}

void CrashChecker::list(Cache& cache) {
  const auto listed = cache.list({});
  expect(listed && listed->size() == static_cast<std::size_t>(table_.count()),
         "the listing has not every object");
  for (const cache::Entry& entry : listed.value_or(std::vector<cache::Entry>{}))
    expect(table_.number_of(entry.key).has_value(), "the listing has a foreign object");
  const auto stats = cache.stats();
  expect(stats && stats->totals.entries == static_cast<std::uint64_t>(table_.count()),
         "the totals are not those of the objects");
  expect(cache.counters().get(cache::Counter::kIndexRebuilt) <= 1,
         "the index was built more than once");
}

/// What the file says is a hint; that it can be read, and counts on, is not.
void CrashChecker::count(const fs::path& root) {
  SampleStore sample(root);
  cache::CounterFile file(sample.layout.counters(), cache::real_file_system(),
                          sample.trust);
  const auto before = file.read(kPatience);
  expect(before.has_value(), "the counters cannot be read");
  expect(file.add({{"probe", 3}}, kPatience).has_value(), "the counters do not count");
  auto after = file.read(kPatience).value_or(cache::CounterFile::Counts{});
  expect(after.extract("probe").mapped() == 3, "the counters count wrongly");
  expect(!before || after == *before, "the counters forget");
}

void CrashChecker::trim(Cache& cache) {
  cache::TrimOptions options;
  options.limit_bytes = 3 * kPayloadBytes;
  options.minimum_age = std::chrono::seconds(-1);
  const auto trimmed = cache.trim(options);
  expect(trimmed && trimmed->bytes_left <= options.limit_bytes,
         "a trim leaves more than the limit");
}

}  // namespace kiln::test
