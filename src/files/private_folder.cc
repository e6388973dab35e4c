#include "files/private_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <tuple>
#include <utility>

#include "cache/file_system.h"
#include "codec/named_files.h"
#include "util/folder_names.h"
#include "util/fork_mutex.h"
#include "util/log.h"
#include "util/mutex.h"
#include "util/posix_error.h"
#include "util/try.h"
#include "util/unique_fd.h"
#include "util/write_file.h"

namespace kiln::files {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMemory = "/dev/shm";
constexpr FileModes kReadOnly{.file = 0400, .program = 0500};

Mutex& private_mutex() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of the process
  static auto* const mutex = new Mutex();
  return *mutex;
}

const char* named_by_user() {
  const char* const set = std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe)
  return set != nullptr && *set == '/' ? set : nullptr;
}

/// Whether many processes may keep files in it, and run them.
bool is_large_memory(const char* folder) {
  constexpr std::uint64_t kEnough = std::uint64_t{4} << 30U;
  struct statfs kind {};
  struct statvfs info {};
  return ::statfs(folder, &kind) == 0 && kind.f_type == TMPFS_MAGIC &&
         ::statvfs(folder, &info) == 0 && (info.f_flag & ST_NOEXEC) == 0 &&
         info.f_bavail * info.f_frsize >= kEnough;
}

std::string prefix() {
  return fmt::format("kiln-files-{}-", ::geteuid());
}

struct Opened {
  UniqueFd folder;
  bool is_locked = false;
};

Opened open_and_lock(const fs::path& folder) {
  UniqueFd opened(
      ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const bool is_locked = opened && ::flock(opened.get(), LOCK_EX | LOCK_NB) == 0;
  return {std::move(opened), is_locked};
}

/// Removes the folders of processes that are gone. Where others cannot see a lock, none
/// is removed.
void sweep(const fs::path& parent) {
  struct statfs kind {};
  if (::statfs(parent.c_str(), &kind) != 0 || cache::is_network_type(kind.f_type))
    return;
  const auto is_ours = [](std::string_view name) { return name.starts_with(prefix()); };
  for (const std::string& name : folder_names(parent, is_ours)) {
    const fs::path path = parent / name;
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
        info.st_uid == ::geteuid() && open_and_lock(path).is_locked)
      remove_whole(path);
  }
}

struct Made {
  fs::path path;
  UniqueFd lock;
};

/// Has another name until it is locked: a sweep leaves it alone.
Result<Made> make_private(const fs::path& parent) {
  std::string made = (parent / ".kiln-files-XXXXXX").native();
  if (::mkdtemp(made.data()) == nullptr) {
    auto failed = posix_error("mkdtemp", made, errno);
    failed.value().message += "; name another folder in TMPDIR";
    return failed;
  }
  UniqueFd lock = open_and_lock(made).folder;
  constexpr std::size_t kSuffix = 6;
  fs::path path = parent / (prefix() + made.substr(made.size() - kSuffix));
  if (lock && ::rename(made.c_str(), path.c_str()) == 0)
    return Made{std::move(path), std::move(lock)};
  const int err = errno;
  ::rmdir(made.c_str());
  return posix_error("lock and rename", made, err);
}

Result<void> write(const fs::path& folder, const std::vector<NamedFile>& all,
                   const FileModes& modes, std::vector<std::string>& names) {
  for (const auto& [name, bytes, is_program] : all) {
    const fs::path path = folder / name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error)
      return posix_error("mkdir", path.parent_path(), error.value());
    KILN_TRY(create_file(path, bytes, is_program ? modes.program : modes.file));
    names.emplace_back(name);
  }
  return {};
}

/// Zero if there is no such file.
FileStamp stamp_at(const fs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? stamp_of(info) : FileStamp{};
}

}  // namespace

Result<std::vector<std::string>> write_files(const cache::StoredObject& object,
                                             const fs::path& folder,
                                             const FileModes& modes) {
  std::vector<std::string> names;
  KILN_TRY(write(folder, KILN_TRY(decode_files(object.payload())), modes, names));
  const std::string source = KILN_TRY(object.source());
  KILN_TRY(write(folder, KILN_TRY(decode_files(as_bytes(source))), modes, names));
  std::ranges::sort(names);
  return names;
}

void remove_whole(const fs::path& folder) {
  std::error_code ignored;  // what is left is the next process's
  fs::remove_all(folder, ignored);
  if (!fs::exists(folder, ignored))
    return;
  for (fs::recursive_directory_iterator entry(folder, ignored), end;
       !ignored && entry != end; entry.increment(ignored)) {
    std::error_code not_ours;
    if (entry->symlink_status(not_ours).type() == fs::file_type::directory)
      fs::permissions(entry->path(), fs::perms::owner_all, not_ours);
  }
  fs::remove_all(folder, ignored);
}

void PrivateFolder::remove() {
  const MutexLock lock(private_mutex());
  if (is_made())
    remove_whole(path_);
}

PrivateFolder& PrivateFolder::on_disk() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): as above
  static auto* const folder = [] {
    hold_over_forks<private_mutex>();
    // NOLINTNEXTLINE(cert-err33-c): it fails without memory; the next sweep removes it
    std::atexit([] { on_disk().remove(); });
    return new PrivateFolder({});
  }();
  return *folder;
}

PrivateFolder& PrivateFolder::in_memory() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): as above
  static auto* const folder = [] {
    std::ignore = on_disk();  // which makes the mutex safe over forks
    // NOLINTNEXTLINE(cert-err33-c): as above
    std::atexit([] { in_memory().remove(); });
    return new PrivateFolder(kMemory);
  }();
  return *folder;
}

fs::path PrivateFolder::parent() const {
  if (!parent_.empty())
    return parent_;
  const char* const named = named_by_user();
  return named != nullptr ? named : "/tmp";
}

Result<fs::path> PrivateFolder::new_folder() {
  const fs::path parent = this->parent();
  const auto attempt = [&] {
    if (needs_folder()) {  // without the lock, which forks wait for
      sweep(parent);
      if (parent != kMemory)
        sweep(kMemory);
    }
    return try_new_folder(parent);
  };
  auto made = attempt();
  return made ? made : attempt();
}

bool PrivateFolder::needs_folder() {
  const MutexLock lock(private_mutex());
  return !is_made();
}

bool PrivateFolder::is_made() const {
  return owner_ && owner_->is_this();
}

Result<fs::path> PrivateFolder::try_new_folder(const fs::path& parent) {
  const MutexLock lock(private_mutex());
  if (!is_made()) {
    auto [path, held] = KILN_TRY(make_private(parent));
    known_.clear();
    path_ = std::move(path);
    std::ignore = held_.release();  // a parent's folder stays locked
    held_ = std::move(held);
    owner_.emplace();
  }
  fs::path made = path_ / std::to_string(folders_++);
  if (::mkdir(made.c_str(), S_IRWXU) == 0)
    return made;
  const int err = errno;
  if (err == ENOENT) {  // somebody has removed it: the next call makes another
    owner_.reset();
    held_.reset();
  }
  return posix_error("mkdir", made, err);
}

std::optional<Given> PrivateFolder::known(const cache::StoredObject& object) {
  const Content content(object.key(), object.payload_digest());
  fs::path changed;
  {
    const MutexLock lock(private_mutex());
    const auto found = known_.find(content);
    if (found == known_.end() || !is_made())
      return std::nullopt;
    const auto& [given, stamps] = found->second;
    for (std::size_t i = 0; i < stamps.size() && changed.empty(); ++i) {
      if (stamp_at(given.folder / given.names[i]) != stamps[i])
        changed = given.folder / given.names[i];
    }
    if (changed.empty())
      return given;
    known_.erase(found);
  }
  log(LogLevel::kWarning, {"somebody has changed ", changed.native(),
                           ": the file is written once more, in another folder"});
  return std::nullopt;
}

Result<Given> PrivateFolder::give(const cache::StoredObject& object) {
  const Content content(object.key(), object.payload_digest());
  Known made{.given = {.folder = KILN_TRY(new_folder()), .names = {}}, .stamps = {}};
  const fs::path folder = made.given.folder;
  auto& names = made.given.names;
  auto written = write_files(object, folder, kReadOnly);
  if (!written) {
    remove_whole(folder);
    return tl::unexpected(written.error());
  }
  names = *std::move(written);
  for (const std::string& name : names) made.stamps.push_back(stamp_at(folder / name));
  Given given = keep(content, std::move(made));
  given.is_new = given.folder == folder;
  if (!given.is_new)
    remove_whole(folder);  // another thread was first
  return given;
}

Result<Given> give_files(const cache::StoredObject& object) {
  constexpr std::size_t kSmall = 16U << 20U;
  constexpr std::size_t kMostInMemory = 256U << 20U;
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of the process
  static std::atomic<std::size_t> used = 0;
  PrivateFolder& disk = PrivateFolder::on_disk();
  PrivateFolder& memory = PrivateFolder::in_memory();
  for (PrivateFolder* const folder : {&disk, &memory}) {
    if (auto given = folder->known(object))
      return *std::move(given);
  }
  const std::size_t bytes = object.file().size();
  if (bytes <= kSmall && used + bytes <= kMostInMemory && named_by_user() == nullptr &&
      is_large_memory(kMemory)) {
    if (auto given = memory.give(object)) {
      used += given->is_new ? bytes : 0;
      return given;
    }
  }
  return disk.give(object);
}

Given PrivateFolder::keep(const Content& content, Known&& made) {
  const MutexLock lock(private_mutex());
  return known_.try_emplace(content, std::move(made)).first->second.given;
}

Result<std::vector<std::string>> files_below(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    const fs::file_status status = entry->symlink_status(error);
    if (error)
      break;
    const std::string name = entry->path().lexically_relative(folder).native();
    if (status.type() == fs::file_type::regular)
      names.push_back(name);
    else if (status.type() != fs::file_type::directory)
      return refuse("{} is neither a file nor a folder", entry->path().native());
  }
  if (error)
    return posix_error("list", folder, error.value());
  std::ranges::sort(names);
  return names;
}

}  // namespace kiln::files
