#include "cache/trim.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "cache/unix_time.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

struct Candidate {
  Digest key;
  std::int64_t used_ns;
  ino_t inode;
  std::uint64_t bytes;
  bool is_removed = false;
};

std::int64_t ns(std::chrono::nanoseconds duration) {
  return duration.count();
}

/// "<64 hex>-<unix ns>-<check>", as ObjectStore::quarantine names them.
bool is_quarantined(std::string_view name) {
  return name.size() > 65 && name[64] == '-' &&
         Digest::from_hex(name.substr(0, 64)).has_value();
}

class Collector {
 public:
  Collector(const Layout& layout, FileSystem& file_system, const ObjectStore& store,
            Counters& counters, const TrimOptions& options)
      : layout_(layout),
        file_system_(file_system),
        store_(store),
        counters_(counters),
        options_(options) {}

  Result<TrimResult> run() {
    std::vector<Candidate> candidates = KILN_TRY(walk());
    if (result_.bytes_left > options_.limit_bytes) {
      const std::uint64_t target =
          percent_of(options_.limit_bytes, options_.target_percent);
      // No kernel goes for what files have beyond their part, as they are too young.
      const std::uint64_t beyond =
          remove_files(candidates, percent_of(target, options_.files_percent));
      std::ignore = remove_oldest(candidates, result_.bytes_left - beyond, target);
    }
    if (options_.dry_run == DryRun::kNo)
      sweep();
    return std::move(result_);
  }

 private:
  /// Every object, the least recently used first.
  Result<std::vector<Candidate>> walk() {
    std::vector<Candidate> found;
    std::optional<Error> failure;
    unsigned failed = 0;
    for (unsigned folder = 0; folder < kFolderCount; ++folder) {
      auto files = store_.list(folder);
      if (!files) {
        failure = std::move(files).error();
        ++failed;
        continue;
      }
      for (const ObjectFile& file : *files) found.push_back(counted(file));
    }
    if (failed == kFolderCount)
      return tl::unexpected(*std::move(failure));
    std::ranges::sort(found, {}, age);
    return found;
  }

  Candidate counted(const ObjectFile& file) {
    const auto bytes = static_cast<std::uint64_t>(file.info.st_size);
    ++result_.entries_left;
    result_.bytes_left += bytes;
    return {file.key, to_ns(file.info.st_mtim), file.info.st_ino, bytes};
  }

  /// Of kind files, until all of them have no more than `most` bytes. Returns how many
  /// more they have.
  std::uint64_t remove_files(std::vector<Candidate>& candidates, std::uint64_t most) {
    const auto others =
        std::stable_partition(candidates.begin(), candidates.end(), [this](auto& each) {
          if (options_.stop.stop_requested())
            return false;
          const auto entry = store_.describe(each.key);  // else it is none of these
          return entry && *entry && (*entry)->kind == Kind::kFiles;
        });
    const std::span files(candidates.begin(), others);
    std::uint64_t bytes = 0;
    for (const Candidate& file : files) bytes += file.bytes;
    bytes = remove_oldest(files, bytes, most);
    std::ranges::sort(candidates, {}, age);
    return bytes - std::min(bytes, most);
  }

  /// Until `bytes`, what there is of them, is no more than `most`. Returns what is
  /// left.
  std::uint64_t remove_oldest(std::span<Candidate> candidates, std::uint64_t bytes,
                              std::uint64_t most) {
    for (Candidate& candidate : candidates) {
      if (bytes <= most || options_.stop.stop_requested())
        break;
      if (candidate.is_removed ||
          now_ns_ - candidate.used_ns < ns(options_.minimum_age))
        continue;  // also one with a stamp in the future
      if (options_.dry_run == DryRun::kNo && !remove(candidate))
        continue;
      candidate.is_removed = true;
      bytes -= candidate.bytes;
      result_.removed_keys.push_back(candidate.key);
      ++result_.removed;
      --result_.entries_left;
      result_.freed_bytes += candidate.bytes;
      result_.bytes_left -= candidate.bytes;
    }
    return bytes;
  }

  static std::tuple<std::int64_t, Digest> age(const Candidate& candidate) {
    return {candidate.used_ns, candidate.key};
  }

  /// No overflow, and 100 percent is exactly `limit`.
  [[nodiscard]] static std::uint64_t percent_of(std::uint64_t limit, unsigned percent) {
    return limit / 100 * percent + limit % 100 * percent / 100;
  }

  /// False if it was used or replaced since the walk, or cannot be removed.
  bool remove(const Candidate& candidate) {
    struct stat info {};
    const std::string path = layout_.object(candidate.key);
    if (file_system_.lstat(path.c_str(), info) != 0 || info.st_ino != candidate.inode ||
        to_ns(info.st_mtim) != candidate.used_ns)
      return false;
    if (file_system_.unlink(path.c_str()) != 0)
      return false;
    counters_.add(Counter::kEvicted);
    return true;
  }

  void sweep() {
    for (unsigned folder = 0; folder < kFolderCount; ++folder)
      sweep_temporaries(layout_.object_folder(folder));
    // Only the root may be a link; its trailing slash follows it.
    for (const auto& folder :
         {layout_.root() / "", layout_.toolchains(), layout_.memo(), layout_.repro(),
          layout_.packs(), layout_.signers()})
      sweep_temporaries(folder.native());
    sweep_quarantine();
  }

  void sweep_temporaries(const std::string& folder) {
    std::vector<std::string> names;
    if (options_.stop.stop_requested() || file_system_.list(folder.c_str(), names) != 0)
      return;  // missing, or left to the next trim
    for (const std::string& name : names) {
      const std::string path = fmt::format("{}/{}", folder, name);
      struct stat info {};
      if (Layout::is_temporary(name) && file_system_.lstat(path.c_str(), info) == 0 &&
          now_ns_ - to_ns(info.st_mtim) > ns(options_.orphan_age))
        sweep(path, Counter::kTemporariesSwept);
    }
  }

  void sweep_quarantine() {
    const std::string folder = layout_.quarantine().native();
    std::vector<std::string> names;
    if (file_system_.list(folder.c_str(), names) != 0)
      return;
    struct File {
      std::int64_t set_aside_ns;
      std::string path;
      std::uint64_t bytes;
    };
    std::vector<File> files;
    for (const std::string& name : names) {
      const std::string path = fmt::format("{}/{}", folder, name);
      struct stat info {};
      // The rename to quarantine set the change time, not the modification time.
      if (is_quarantined(name) && file_system_.lstat(path.c_str(), info) == 0)
        files.push_back(
            {to_ns(info.st_ctim), path, static_cast<std::uint64_t>(info.st_size)});
    }
    std::ranges::sort(files, std::greater<>(), [](const File& file) {
      return std::tie(file.set_aside_ns, file.path);
    });
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < files.size(); ++i) {
      bytes += files[i].bytes;
      if (i >= options_.quarantine_count ||
          bytes > percent_of(options_.limit_bytes, options_.quarantine_percent) ||
          now_ns_ - files[i].set_aside_ns > ns(options_.quarantine_age))
        sweep(files[i].path, Counter::kQuarantineSwept);
    }
  }

  void sweep(const std::string& path, Counter counter) {
    if (file_system_.unlink(path.c_str()) != 0)
      return;
    ++result_.orphans_swept;
    counters_.add(counter);
  }

  const Layout& layout_;
  FileSystem& file_system_;
  const ObjectStore& store_;
  Counters& counters_;
  const TrimOptions& options_;
  const std::int64_t now_ns_ = unix_now_ns();
  TrimResult result_;
};

}  // namespace

Result<TrimResult> trim(const Layout& layout, FileSystem& file_system,
                        const ObjectStore& store, Counters& counters,
                        const TrimOptions& options) {
  return Collector(layout, file_system, store, counters, options).run();
}

}  // namespace kiln::cache
