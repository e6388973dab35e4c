// The maintenance part of Cache: stats, verify, trim, remove.

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <tuple>
#include <utility>

#include "cache/background.h"
#include "cache/cache.h"
#include "cache/lock_folder.h"
#include "cache/unix_time.h"
#include "util/log.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

constexpr std::chrono::seconds kStatsFlush{2};
constexpr std::chrono::milliseconds kStatsCountLimit{200};
constexpr std::chrono::milliseconds kOthersCountLimit{0};  // who may hold the lock
constexpr std::chrono::seconds kOwnTrimLimit{5};
constexpr std::int64_t kTrimCheckNs = 3600LL * 1'000'000'000;
constexpr int kStampFlags = O_WRONLY | O_CREAT | kNoLinkFlags;

}  // namespace

Result<Stats> Cache::stats() {
  if (counter_file_ != nullptr)
    flush(kStatsFlush);
  Stats stats;
  stats.limit_bytes = options_.limit_bytes;
  stats.totals = KILN_TRY(totals());
  const CounterFile::Counts all = written_counts();
  // The file includes our own counts, unless it could not be written or read: then ours
  // are a lower bound.
  stats.counters = counters_.snapshot();
  for (const auto& [name, n] : all) {
    std::uint64_t& count = stats.counters[name];
    count = std::max(count, n);
  }
  return stats;
}

std::filesystem::path Cache::counters_dir() const {
  return options_.counters_dir.empty() ? options_.persistent_dir
                                       : options_.counters_dir;
}

/// Of this user's file, and of those that others have in folders of the node: a user
/// can add to the sums, and takes nothing from them.
CounterFile::Counts Cache::written_counts() {
  CounterFile::Counts all;
  if (counter_file_ != nullptr) {
    auto own = counter_file_->read(kStatsCountLimit);
    if (!own)
      counters_.add_if_untrusted(own.error());
    all = std::move(own).value_or(CounterFile::Counts{});
  }
  for (const auto& [user, folder] : node_folders(layout_, counters_dir())) {
    const std::filesystem::path path = folder / "counters";
    const TrustPolicy of_user = TrustPolicy::of_this_process({user});
    if (path == counts_at_ || !of_user.check_path(*file_system_, path))
      continue;
    CounterFile file(path, *file_system_, of_user);
    all = CounterFile::sum(
        std::move(all), file.read(kOthersCountLimit).value_or(CounterFile::Counts{}));
  }
  return all;
}

/// From the index, else from a walk over the objects.
Result<Totals> Cache::totals() {
  if (index_ != nullptr && index_->refresh({})) {
    if (auto totals = index_->totals())
      return totals;
  }
  Totals totals;
  for (unsigned folder = 0; store_ != nullptr && folder < kFolderCount; ++folder) {
    for (const ObjectFile& file : KILN_TRY(store_->list(folder))) {
      ++totals.entries;
      totals.bytes += static_cast<std::uint64_t>(file.info.st_size);
    }
  }
  return totals;
}

Result<KindTotals> Cache::totals_by_kind() {
  if (index_ != nullptr) {
    if (auto kinds = index_->totals_by_kind())
      return kinds;
  }
  KindTotals kinds;
  for (const Entry& entry : KILN_TRY(walk({}, Damaged::kLeaveOut))) {
    Totals& of_kind = kinds[entry.kind];
    ++of_kind.entries;
    of_kind.bytes += entry.size_bytes;
  }
  return kinds;
}

/// Counts the entry; the problem of one that is not trusted.
std::optional<ObjectProblem> Cache::check_signers(const Entry& entry,
                                                  const TrustedKeys& keys,
                                                  VerifyResult& result) const {
  std::string why = why_distrusted(entry, keys);
  ++(!why.empty()              ? result.distrusted
     : entry.signed_by.empty() ? result.without_signer
                               : result.trusted);
  if (why.empty())
    return std::nullopt;
  return ObjectProblem{ObjectProblem::What::kDistrusted,
                       entry.key,
                       layout_.object(entry.key),
                       {},
                       std::move(why)};
}

Result<VerifyResult> Cache::verify(const VerifyOptions& options) {
  VerifyResult result;
  const bool describes = options.only || options.keys != nullptr;
  const auto known =
      describes && (options.keys != nullptr || asks_for_signers(*options.only))
          ? signers().read()
          : Signers::Known();
  for (unsigned folder = 0; store_ != nullptr && folder < kFolderCount; ++folder) {
    for (const Digest& key : KILN_TRY(store_->list_keys(folder))) {
      if (options.stop.stop_requested())
        return result;
      auto entry =
          describes ? store_->describe(key).value_or(std::nullopt) : std::nullopt;
      if (entry)
        cache::add_signers(known, *entry);
      if (options.only && entry && !matches(*options.only, *entry))
        continue;
      ++result.checked;
      std::optional<ObjectProblem> problem = store_->verify(key);
      if (!problem && entry && options.keys != nullptr)
        problem = check_signers(*entry, *options.keys, result);
      if (!problem)
        continue;
      result.corrupt += problem->what == ObjectProblem::What::kCorrupt ? 1 : 0;
      result.untrusted += problem->what == ObjectProblem::What::kUntrusted ? 1 : 0;
      result.unreadable += problem->what == ObjectProblem::What::kUnreadable ? 1 : 0;
      if (options.quarantine == Quarantine::kYes && problem->check)
        problem->quarantined = store_->quarantine(key, problem->seen, *problem->check);
      if (problem->quarantined) {  // otherwise every verify would count it
        ++result.quarantined;
        counters_.add_corrupt(*problem->check);
      }
      if (options.on_problem)
        options.on_problem(*problem);
      result.problems.push_back(*std::move(problem));
    }
  }
  return result;
}

/// Holds nothing where locks do not work: two collectors are safe, only wasteful.
Result<OwnedRange> Cache::acquire_collector_lock() {
  if (!lock_folder_.usable())
    return OwnedRange();
  std::optional<OwnerRecord> other;
  for (std::uint64_t record = 0; record < kMostCollectors; ++record) {
    const OwnedRange::Place place{file_system_, lock_folder_.path / "trim", record};
    auto owned = OwnedRange::try_own(place, {}, options_.lock_times.heartbeat);
    if (!owned) {
      counters_.add_if_untrusted(owned.error());
      return OwnedRange();
    }
    if (*owned)
      return **std::move(owned);
    other = OwnedRange::owner(place);
    // A stopped collector would let the cache grow for ever. A second one is safe: each
    // checks a file again before deleting it.
    const MutexLock lock(collectors_mutex_);
    auto& watch = collectors_[record];
    if (!watch)
      watch.emplace(options_.lock_times);
    if (!watch->give_up(other))
      break;
  }
  return fail(ErrorCode::kUnavailable,
              other ? fmt::format("process {} is trimming the cache", other->pid)
                    : "another process is trimming the cache");
}

Result<TrimResult> Cache::trim(const TrimOptions& options) {
  if (is_absent_)
    return TrimResult{};
  KILN_TRY(writable());
  flush(kOwnTrimLimit);  // the background thread may be trimming after a publish
  return collect(options);
}

Result<TrimResult> Cache::collect(const TrimOptions& options) {
  const OwnedRange collector_lock = KILN_TRY(acquire_collector_lock());
  auto trimmed = cache::trim(layout_, *file_system_, *store_, counters_, options);
  if (trimmed && options.dry_run == DryRun::kNo)
    forget_signers();
  return trimmed;
}

/// Of keys that are gone.
void Cache::forget_signers() const {
  // What cannot be rewritten stays.
  std::ignore = signers().keep([&](const Digest& key) {
    struct stat info {};
    return file_system_->lstat(layout_.object(key).c_str(), info) != -ENOENT;
  });
}

/// Also where the cache is not full, if this process has set something aside: only a
/// trim keeps the quarantine within its limits.
void Cache::trim_if_full(std::uint64_t bytes, const std::stop_token& stop) {
  const auto totals =
      index_ != nullptr ? index_->totals() : fail(ErrorCode::kUnavailable, "no index");
  const std::uint64_t quarantined = counters_.get(Counter::kQuarantined);
  const bool has_more = std::exchange(quarantined_, quarantined) != quarantined;
  // Without a usable index the cache must not grow for ever. Asked in any case: it adds
  // up the bytes, and tells other processes of this walk.
  const bool is_full =
      totals ? totals->bytes > options_.limit_bytes : trim_is_due(bytes);
  if (!has_more && !is_full)
    return;
  TrimOptions options;
  options.limit_bytes = options_.limit_bytes;
  options.stop = stop;
  const auto trimmed = collect(options);
  if (!trimmed) {
    log(LogLevel::kDebug, {"not trimmed: ", trimmed.error().message});
    return;
  }
  if (index_ != nullptr && trimmed->removed > 0)
    std::ignore = index_->refresh(stop);  // a failure is counted; next listing retries
}

/// Without an index only a walk tells the size. It is due once an hour, in whichever
/// process comes first, or when this process has published 5 % of the limit.
bool Cache::trim_is_due(std::uint64_t bytes) {
  bytes_since_trim_ += bytes;
  struct stat info {};
  const std::string stamp = layout_.trim_stamp().native();
  // The time of a file that another user can change says nothing; below it is refused.
  const bool fresh = file_system_->lstat(stamp.c_str(), info) == 0 &&
                     trust_.accepts_file(info) &&
                     std::abs(unix_now_ns() - to_ns(info.st_mtim)) < kTrimCheckNs;
  const bool much = bytes_since_trim_ >= options_.limit_bytes / 20;
  if (fresh && !much)
    return false;
  // Touch the stamp first, so that other processes do not walk at the same time.
  const int fd = file_system_->open(stamp.c_str(), kStampFlags, 0600);
  bool touched = false;
  if (fd >= 0) {
    const bool ours = file_system_->fstat(fd, info) == 0 && info.st_nlink > 0 &&
                      trust_.accepts_file(info);
    touched = ours && file_system_->touch(fd) == 0;
    std::ignore = file_system_->close(fd);  // nothing was written
  }
  if (!touched && trust_.refuses(*file_system_, stamp))
    counters_.add(Counter::kUntrusted);
  // Without a usable stamp, only the bytes published here decide.
  const bool due = touched || much;
  if (due)
    bytes_since_trim_ = 0;
  return due;
}

Result<std::uint64_t> Cache::remove(const Digest& key) {
  if (seeds_ != nullptr)
    seeds_->pass_over(key);
  KILN_TRY(writable());
  return store_->remove(key);
}

}  // namespace kiln::cache
