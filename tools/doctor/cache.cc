// What Kiln keeps on disk: root, file system, space, locks, index.

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "build/build_options.h"
#include "tools/doctor/doctor.h"
#include "tools/open_cache.h"
#include "tools/output/entries.h"
#include "util/units.h"
#include "util/words.h"

namespace kiln::tools {
namespace {

constexpr std::chrono::seconds kLockProbeLimit{3};
constexpr std::uint64_t kLittleSpace = 1ULL << 30U;
constexpr std::uint64_t kFewInodes = 10'000;

std::string_view mode_name(const cache::Cache& cache) {
  return cache.is_absent() ? "absent"
                           : word_of(cache.mode(), {"read-write", "read-only", "off"});
}

/// `path`, or the nearest folder above it that exists.
std::string existing(std::filesystem::path path) {
  struct stat info {};
  while (::stat(path.c_str(), &info) != 0 && path.has_relative_path())
    path = path.parent_path();
  return path.native();
}

/// Reads the facts about the root's folder, if it exists, and about the file system
/// that it is or would be on.
void look_at_root(const cache::Cache& cache, CacheFacts& facts) {
  facts.root = cache.layout().root().native();
  facts.mode = mode_name(cache);
  facts.has_index = cache.has_index();
  if (cache.is_silent())
    return;
  struct stat info {};
  if (::stat(facts.root.c_str(), &info) == 0) {
    facts.owner = info.st_uid;
    facts.permissions = fmt::format("{:04o}", info.st_mode & 07777U);
  } else if (!cache.is_absent()) {
    return;
  }
  const std::string folder = existing(facts.root);
  const std::int64_t type = cache::real_file_system().type(folder.c_str());
  if (type >= 0) {
    facts.file_system = cache::file_system_name(type);
    facts.is_network = cache::is_network_type(type);
  }
  struct statvfs room {};
  if (::statvfs(folder.c_str(), &room) != 0)
    return;
  facts.free_bytes = std::uint64_t{room.f_bavail} * room.f_frsize;
  // Some file systems have no fixed number of inodes and report 0 of 0.
  if (room.f_files > 0)
    facts.free_inodes = room.f_favail;
}

std::string owner_text(const CacheFacts& facts) {
  if (!facts.owner)
    return "";
  return fmt::format("; owner {}{}, mode {}", *facts.owner,
                     *facts.owner == ::geteuid() ? " (you)" : "", facts.permissions);
}

/// Of a cache that is not there yet.
Check absent_check(const CacheFacts& facts) {
  const std::string folder = existing(facts.root);
  const int err = cache::real_file_system().writable(folder.c_str());
  if (err == 0)
    return {
        "cache root", CheckVerdict::kOk,
        facts.root + ": no cache yet; the first build makes it" + owner_text(facts)};
  return {"cache root", CheckVerdict::kFail,
          fmt::format("{}: no cache, and none can be made: {}: {}", facts.root, folder,
                      std::generic_category().message(-err)),
          "set KILN_CACHE_DIR to a folder that only this user can write"};
}

/// The reason has the remedy at its end, where there is one.
Check off_check(const std::string& reason) {
  const std::size_t end = reason.rfind("; ");
  return {"cache root", CheckVerdict::kFail,
          "no cache on disk: " + reason.substr(0, end),
          end == std::string::npos
              ? "set KILN_CACHE_DIR to a folder that only this user can write"
              : reason.substr(end + 2)};
}

Check root_check(const cache::Cache& cache, const CacheFacts& facts) {
  if (cache.is_absent())
    return absent_check(facts);
  Check check{"cache root", CheckVerdict::kOk, facts.root};
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
      return off_check(cache.mode_reason());
  }
  check.detail += owner_text(facts);
  if (!cache.place_reason().empty())
    check.detail += "; " + cache.place_reason();
  return check;
}

Check file_system_check(const CacheFacts& facts) {
  constexpr const char* kName = "file system";
  if (!facts.is_network)
    return {kName, CheckVerdict::kWarn, "cannot be told",
            "see the other checks of the cache"};
  if (*facts.is_network)
    return {
        kName, CheckVerdict::kWarn,
        fmt::format(
            "{}{} on the network: no lock is taken there, and there is no "
            "index; two machines may build one kernel at "
            "once, and ls and stats read every object",
            facts.file_system,
            facts.file_system.starts_with("unknown") ? ", taken for a folder" : ","),
        "fine for a root that is warmed and then read; to write, set "
        "KILN_CACHE_DIR to a folder on a local disk"};
  std::string detail = facts.file_system + ", local";
  if (facts.has_index)
    detail += ": index and counters are in the root";
  if (facts.file_system == "tmpfs" || facts.file_system == "ramfs")
    detail += "; in memory: its kernels are lost with the next boot";
  if (facts.file_system == "overlayfs")
    detail += "; of a container: its kernels may be lost with the container";
  return {kName, CheckVerdict::kOk, detail};
}

Check space_check(const CacheFacts& facts) {
  constexpr const char* kName = "disk space";
  if (!facts.free_bytes)
    return {kName, CheckVerdict::kWarn, "cannot be asked for " + facts.root,
            "see the other checks of the cache"};
  std::string detail = fmt::format("{} free", format_size(*facts.free_bytes));
  if (facts.free_inodes)
    detail += fmt::format(", {} inodes", *facts.free_inodes);
  if (*facts.free_bytes < kLittleSpace ||
      (facts.free_inodes && *facts.free_inodes < kFewInodes))
    return {kName, CheckVerdict::kWarn, detail,
            "free some space, or lower KILN_CACHE_SIZE; a kernel that does not fit is "
            "built again in each process"};
  return {kName, CheckVerdict::kOk, detail};
}

/// Of a root that takes no counts itself.
Check counts_check(const Result<std::filesystem::path>& counts) {
  if (counts)
    return {"counts", CheckVerdict::kOk, "in " + counts->native()};
  return {"counts", CheckVerdict::kWarn, "not kept: " + counts.error().message,
          "set KILN_COUNTERS_DIR to a folder on a local disk that this user can write"};
}

Check lock_check(const cache::Cache& cache, const CacheFacts& facts,
                 const LockProbe& probe) {
  constexpr const char* kRemedy =
      "processes may build one kernel twice; results are right all the same. Set "
      "KILN_CACHE_DIR or XDG_RUNTIME_DIR to a local folder";
  if (!facts.locks)
    return {"locks", CheckVerdict::kWarn,
            "there is no folder for locks: " + cache.lock_folder().why, kRemedy};
  switch (probe.answer) {
    case LockAnswer::kWork:
      return {"locks", CheckVerdict::kOk,
              fmt::format("work in {} ({})", facts.lock_folder,
                          format_duration(probe.took))};
    case LockAnswer::kRefused:
      break;
    case LockAnswer::kNoAnswer:
      return {
          "locks", CheckVerdict::kFail,
          fmt::format("a lock call in {} did not return for {}", facts.lock_folder,
                      format_duration(probe.took)),
          "every process that builds here would hang with it: set KILN_CACHE_DIR to "
          "a folder on a local disk"};
  }
  return {"locks", CheckVerdict::kWarn,
          fmt::format("do not work in {}: {}", facts.lock_folder,
                      std::generic_category().message(probe.error)),
          kRemedy};
}

Check index_check(cache::Cache& cache, Diagnosis& diagnosis) {
  if (auto skipped = skipped_check("index", diagnosis))
    return *std::move(skipped);
  const auto stats = cache.stats();
  if (!stats)
    return {"index", CheckVerdict::kWarn, stats.error().message,
            "delete index.sqlite in the cache root; it is rebuilt"};
  diagnosis.cache.totals = stats->totals;
  const auto over = over_limit_text(*stats);
  return {"index", over.empty() ? CheckVerdict::kOk : CheckVerdict::kWarn,
          fmt::format(
              "{}, {} of {}{}", counted(stats->totals.entries, "entry", "entries"),
              format_size(stats->totals.bytes), format_size(stats->limit_bytes),
              cache.has_index() ? "" : "; no index here, listing walks the objects"),
          over};
}

Check seed_check(const cache::SeedState& seed) {
  if (seed.error || seed.bad_rows > 0)
    return {
        "seed", CheckVerdict::kWarn, seed_text(seed),
        "its kernels are built again; replace the seed, or take it out of KILN_SEED"};
  return {"seed", CheckVerdict::kOk, seed_text(seed)};
}

Check precompiled_check(BuildService& service) {
  const Config& config = service.config();
  const OwnFolder folder = precompiled_folder(config, service.cache());
  constexpr const char* kName = "precompiled headers";
  if (folder.empty())
    return {kName, CheckVerdict::kOk,
            precompiled_limit(config) == 0
                ? "off: KILN_PCH_SIZE or KILN_CACHE_SIZE is 0"
                : "off: the cache is on the network, held open or cannot be written"};
  if (const auto own = folder.check(); !own)
    return {kName, CheckVerdict::kWarn, "not used", own.error().message};
  return {kName, CheckVerdict::kOk,
          precompiled_text(precompiled_store(config, service.cache()).totals(),
                           precompiled_limit(config))};
}

}  // namespace

void probe_lock_folder(BuildService& service, Diagnosis& diagnosis) {
  const cache::LockFolder& folder = service.cache().lock_folder();
  if (!folder.usable())
    return;
  diagnosis.cache.lock_folder = folder.path.native();
  diagnosis.lock_probe = probe_locks(folder.path, kLockProbeLimit);
  diagnosis.cache.locks = diagnosis.lock_probe.answer;
}

std::optional<Check> skipped_check(const std::string& name,
                                   const Diagnosis& diagnosis) {
  if (diagnosis.cache.locks != LockAnswer::kNoAnswer)
    return std::nullopt;
  return Check{name, CheckVerdict::kWarn,
               "not checked: the check takes a lock, and locks give no answer here",
               "see the check of the locks"};
}

void check_cache(BuildService& service, Diagnosis& diagnosis) {
  cache::Cache& cache = service.cache();
  CacheFacts& facts = diagnosis.cache;
  look_at_root(cache, facts);
  facts.limit_bytes = service.config().cache_limit_bytes;
  diagnosis.add(root_check(cache, facts));
  if (cache.seeds() != nullptr) {
    for (const cache::SeedState& seed : cache.seeds()->states())
      diagnosis.add(seed_check(seed));
  }
  if (cache.mode() == cache::Mode::kOff && !cache.is_absent())
    return;
  diagnosis.add(file_system_check(facts));
  diagnosis.add(space_check(facts));
  if (cache.is_absent())
    return;
  if (cache.mode() == cache::Mode::kReadWrite || facts.locks)
    diagnosis.add(lock_check(cache, facts, diagnosis.lock_probe));
  diagnosis.add(index_check(cache, diagnosis));
  if (const auto counts = cache.counts_at(); counts != cache.layout().counters())
    diagnosis.add(counts_check(counts));
  diagnosis.add(precompiled_check(service));
  // Counters are written at exit, under a lock too: drop those still unwritten.
  if (facts.locks == LockAnswer::kNoAnswer)
    std::ignore = cache.counters().take_unwritten();
}

}  // namespace kiln::tools
