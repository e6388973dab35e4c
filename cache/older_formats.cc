#include "cache/older_formats.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "cache/unix_time.h"

namespace kiln::cache {
namespace {

/// Thread safety: one thread.
class Finder {
 public:
  Finder(FileSystem& file_system, const TrustPolicy& trust, Counters& counters)
      : file_system_(file_system), trust_(trust), counters_(counters) {}

  /// No link, and nobody else's to write.
  [[nodiscard]] bool is_trusted_folder(const std::string& path) const {
    struct stat info {};
    if (file_system_.lstat(path.c_str(), info) != 0)
      return false;
    return counted(S_ISDIR(info.st_mode) && trust_.accepts(info));
  }

  void add_folder(unsigned number, OlderFormat& older) const {
    const std::string folder = older.layout.object_folder(number);
    std::vector<std::string> names;
    if (!is_trusted_folder(folder) || file_system_.writable(folder.c_str()) != 0 ||
        file_system_.list(folder.c_str(), names) != 0)
      return;
    older.folders.push_back(number);
    for (const std::string& name : names) {
      const auto key = Layout::key_of(number, name);
      if (!key)
        continue;
      ObjectFile file{*key, {}};
      if (file_system_.lstat(older.layout.object(*key).c_str(), file.info) == 0 &&
          counted(S_ISREG(file.info.st_mode)))
        older.objects.push_back(file);
    }
  }

 private:
  [[nodiscard]] bool counted(bool accepted) const {
    if (!accepted)
      counters_.add(Counter::kUntrusted);
    return accepted;
  }

  FileSystem& file_system_;
  const TrustPolicy& trust_;
  Counters& counters_;
};

}  // namespace

std::uint64_t OlderFormat::bytes() const {
  std::uint64_t bytes = 0;
  for (const ObjectFile& file : objects)
    bytes += static_cast<std::uint64_t>(file.info.st_size);
  return bytes;
}

std::int64_t OlderFormat::last_used_ns() const {
  std::int64_t latest = 0;
  for (const ObjectFile& file : objects)
    latest = std::max(latest, to_ns(file.info.st_mtim));
  return latest;
}

std::vector<OlderFormat> find_older_formats(const Layout& layout,
                                            FileSystem& file_system,
                                            const TrustPolicy& trust,
                                            Counters& counters,
                                            const std::stop_token& stop) {
  std::vector<std::string> names;
  // As the path to our own objects this may go through a link, which the last slash
  // follows.
  if (file_system.list((layout.formats() / "").c_str(), names) != 0)
    return {};
  const Finder finder(file_system, trust, counters);
  std::vector<OlderFormat> found;
  for (const std::string& name : names) {
    const auto version = layout.older_format(name);
    if (!version)
      continue;
    OlderFormat older{Layout(layout.root(), *version), {}, {}};
    if (!finder.is_trusted_folder(older.layout.objects()))
      continue;
    for (unsigned number = 0; number < kFolderCount && !stop.stop_requested(); ++number)
      finder.add_folder(number, older);
    found.push_back(std::move(older));
  }
  std::ranges::sort(found, {}, &OlderFormat::version);
  return found;
}

void remove_empty_folders(FileSystem& file_system, const OlderFormat& older) {
  // One that is not empty stays, whoever has put what into it.
  for (const unsigned number : older.folders)
    std::ignore = file_system.rmdir(older.layout.object_folder(number).c_str());
  std::ignore = file_system.rmdir(older.layout.objects().c_str());
}

}  // namespace kiln::cache
