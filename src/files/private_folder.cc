#include "files/private_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "codec/named_files.h"
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

constexpr mode_t kFileMode = 0400;
constexpr mode_t kProgramMode = 0500;

Mutex& private_mutex() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of the process
  static auto* const mutex = new Mutex();
  return *mutex;
}

fs::path temporary_folder() {
  const char* const set = std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe)
  return set != nullptr && *set == '/' ? set : "/tmp";
}

std::string prefix() {
  return fmt::format("kiln-files-{}-", ::geteuid());
}

/// Open and locked; none, if another process has locked it, or it cannot be opened.
UniqueFd locked(const fs::path& folder) {
  UniqueFd lock(
      ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return {};
  return lock;
}

/// Removes the folders of processes that are gone.
void sweep(const fs::path& parent) {
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    struct stat info {};
    if (path.filename().native().starts_with(prefix()) &&
        ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
        info.st_uid == ::geteuid() && locked(path))
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
  if (::mkdtemp(made.data()) == nullptr)
    return posix_error("mkdtemp", made, errno);
  UniqueFd lock = locked(made);
  constexpr std::size_t kSuffix = 6;
  fs::path path = parent / (prefix() + made.substr(made.size() - kSuffix));
  if (lock && ::rename(made.c_str(), path.c_str()) == 0)
    return Made{std::move(path), std::move(lock)};
  const int err = errno;
  ::rmdir(made.c_str());
  return posix_error("lock and rename", made, err);
}

Result<void> write(const fs::path& folder, const std::vector<NamedFile>& all,
                   std::vector<std::string>& names) {
  for (const auto& [name, bytes, is_program] : all) {
    const fs::path path = folder / name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error)
      return posix_error("mkdir", path.parent_path(), error.value());
    KILN_TRY(create_file(path, bytes, is_program ? kProgramMode : kFileMode));
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

PrivateFolder::PrivateFolder() {
  hold_over_forks<private_mutex>();
  // NOLINTNEXTLINE(cert-err33-c): it fails without memory; the next sweep removes it
  std::atexit([] {
    PrivateFolder& own = of_process();
    const MutexLock lock(private_mutex());
    if (own.is_made())
      remove_whole(own.path_);
  });
}

PrivateFolder& PrivateFolder::of_process() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): as above
  static auto* const folder = new PrivateFolder();
  return *folder;
}

Result<fs::path> PrivateFolder::new_folder() {
  const fs::path parent = temporary_folder();
  const auto attempt = [&] {
    if (needs_folder())
      sweep(parent);  // without the lock, which forks wait for
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

std::optional<Given> PrivateFolder::known(const Digest& key) {
  fs::path changed;
  {
    const MutexLock lock(private_mutex());
    const auto found = known_.find(key);
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
                           ": it is written once more, in another folder"});
  return std::nullopt;
}

Result<Given> PrivateFolder::give(const cache::StoredObject& object) {
  if (auto given = known(object.key()))
    return *std::move(given);
  Known made{.given = {.folder = KILN_TRY(new_folder()), .names = {}}, .stamps = {}};
  auto& [folder, names] = made.given;
  const auto written = [&, &folder = folder, &names = names]() -> Result<void> {
    KILN_TRY(write(folder, KILN_TRY(decode_files(object.payload())), names));
    const std::string source = KILN_TRY(object.source());
    return write(folder, KILN_TRY(decode_files(as_bytes(source))), names);
  }();
  if (!written) {
    remove_whole(folder);
    return tl::unexpected(written.error());
  }
  std::ranges::sort(names);
  for (const std::string& name : names) made.stamps.push_back(stamp_at(folder / name));
  const fs::path own = folder;
  Given given = keep(object.key(), std::move(made));
  if (given.folder != own)
    remove_whole(own);  // another thread was first
  return given;
}

Given PrivateFolder::keep(const Digest& key, Known&& made) {
  const MutexLock lock(private_mutex());
  return known_.try_emplace(key, std::move(made)).first->second.given;
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
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{} is neither a file nor a folder", entry->path().native()));
  }
  if (error)
    return posix_error("list", folder, error.value());
  std::ranges::sort(names);
  return names;
}

}  // namespace kiln::files
