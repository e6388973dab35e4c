// What Kiln keeps on disk: root, file system, space, locks, index.

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <chrono>
#include <random>

#include "tools/doctor.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

constexpr std::chrono::seconds kLockProbeLimit{3};
constexpr std::uint64_t kLittleSpace = 1ULL << 30U;
constexpr std::uint64_t kFewInodes = 10'000;

Check root_check(const cache::Cache& cache) {
  Check check{"cache root", CheckVerdict::kOk, cache.layout().root().native(), ""};
  switch (cache.mode()) {
    case cache::Mode::kReadWrite:
      check.detail += ": read and written";
      break;
    case cache::Mode::kReadOnly:
      check.verdict = CheckVerdict::kWarn;
      check.detail += ": read-only, " + cache.mode_reason();
      check.remedy = "fine for a warmed image; else make it writable for this user";
      break;
    case cache::Mode::kOff:
      check.verdict = CheckVerdict::kFail;
      check.detail = "no cache on disk: " + cache.mode_reason();
      check.remedy = "set KILN_CACHE_DIR to a folder that only this user can write";
      break;
  }
  return check;
}

Check space_check(const cache::Cache& cache) {
  Check check{"disk space", CheckVerdict::kOk, "", ""};
  struct statvfs info {};
  const std::string root = cache.layout().root().native();
  if (::statvfs(root.c_str(), &info) != 0) {
    check.verdict = CheckVerdict::kWarn;
    check.detail = "cannot be asked for " + root;
    return check;
  }
  const std::uint64_t bytes = std::uint64_t{info.f_bavail} * info.f_frsize;
  const std::uint64_t inodes = info.f_favail;
  check.detail = fmt::format("{} and {} inodes free", format_size(bytes), inodes);
  // Some file systems have no fixed number of inodes and say 0 of 0.
  if (bytes < kLittleSpace || (info.f_files > 0 && inodes < kFewInodes)) {
    check.verdict = CheckVerdict::kWarn;
    check.remedy =
        "free some, or lower KILN_CACHE_SIZE; what does not fit is built "
        "again in each process";
  }
  return check;
}

cache::Digest random_key() {
  std::random_device random;
  return cache::Digest::of(as_bytes(fmt::format("{} {}", random(), ::getpid())));
}

Check lock_check(cache::Cache& cache) {
  Check check{"locks", CheckVerdict::kOk, "", ""};
  const auto began = std::chrono::steady_clock::now();
  const auto acquired = cache.lock({.key = random_key(),
                                    .look_again = [] { return false; },
                                    .stop = {},
                                    .deadline = began + kLockProbeLimit,
                                    .on_wait = {}});
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began);
  if (acquired.outcome == cache::KeyLock::Outcome::kHeld) {
    check.detail = fmt::format("work in {} ({})", cache.lock_folder().path.native(),
                               format_duration(elapsed));
  } else {
    check.verdict = CheckVerdict::kWarn;
    check.detail = "do not work: " + acquired.reason;
    check.remedy =
        "processes may build one kernel twice; results are right all the "
        "same. Set XDG_RUNTIME_DIR to a local folder";
  }
  return check;
}

Check index_check(cache::Cache& cache) {
  Check check{"index", CheckVerdict::kOk, "", ""};
  const auto stats = cache.stats();
  if (!stats) {
    check.verdict = CheckVerdict::kWarn;
    check.detail = stats.error().message;
    check.remedy = "delete index.sqlite in the cache root; it is rebuilt";
    return check;
  }
  check.detail = fmt::format(
      "{} entries, {} of {}{}", stats->totals.entries, format_size(stats->totals.bytes),
      format_size(stats->limit_bytes),
      cache.has_index() ? "" : "; no index here, listing walks the objects");
  return check;
}

}  // namespace

void check_cache(BuildService& service, Diagnosis& diagnosis) {
  cache::Cache& cache = service.cache();
  diagnosis.checks.push_back(root_check(cache));
  if (cache.mode() == cache::Mode::kOff)
    return;
  diagnosis.checks.push_back(space_check(cache));
  if (cache.mode() == cache::Mode::kReadWrite)
    diagnosis.checks.push_back(lock_check(cache));
  diagnosis.checks.push_back(index_check(cache));
}

}  // namespace kiln::tools
