#include "files/private_folder.h"

#include <dirent.h>
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
#include "util/write_file.h"

namespace kiln::files {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kFileMode = 0400;
constexpr mode_t kProgramMode = 0500;
constexpr const char* kLock = "lock";

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

/// Opened and locked; none, if another process has locked it.
UniqueFd lock_of(const fs::path& folder, int flags) {
  UniqueFd lock(::open((folder / kLock).c_str(),
                       flags | O_RDWR | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
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
    if (!path.filename().native().starts_with(prefix()) ||
        ::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
        info.st_uid != ::geteuid())
      continue;
    const UniqueFd lock(
        ::open((path / kLock).c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    if (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) {
      std::error_code ignored;  // what is left is the next one's
      fs::remove_all(path, ignored);
    }
  }
}

/// Made under another name until it is locked: a sweep leaves it alone.
Result<std::pair<fs::path, UniqueFd>> make_private() {
  const fs::path parent = temporary_folder();
  sweep(parent);
  std::string made = (parent / ".kiln-files-XXXXXX").native();
  if (::mkdtemp(made.data()) == nullptr)
    return posix_error("mkdtemp", made, errno);
  const std::string suffix = made.substr(made.size() - 6);
  UniqueFd lock = lock_of(made, O_CREAT | O_EXCL);
  if (!lock)
    return posix_error("create", fs::path(made) / kLock, errno);
  const fs::path path = parent / (prefix() + suffix);
  if (::rename(made.c_str(), path.c_str()) != 0)
    return posix_error("rename", path, errno);
  return std::pair(path, std::move(lock));
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

PrivateFolder::PrivateFolder() {
  hold_over_forks<private_mutex>();
  // NOLINTNEXTLINE(cert-err33-c): it fails without memory; the next sweep removes it
  std::atexit([] {
    PrivateFolder& own = of_process();
    const MutexLock lock(private_mutex());
    std::error_code ignored;
    if (own.owner_ && own.owner_->is_this())
      fs::remove_all(own.path_, ignored);
  });
}

PrivateFolder& PrivateFolder::of_process() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): as above
  static auto* const folder = new PrivateFolder();
  return *folder;
}

Result<fs::path> PrivateFolder::new_folder() {
  auto made = try_new_folder();
  return made ? made : try_new_folder();
}

Result<fs::path> PrivateFolder::try_new_folder() {
  const MutexLock lock(private_mutex());
  if (!owner_ || !owner_->is_this()) {
    auto [path, held] = KILN_TRY(make_private());
    known_.clear();
    path_ = std::move(path);
    std::ignore = held_.release();  // of the parent's, which stays locked for its files
    held_ = std::move(held);
    owner_.emplace();
  }
  fs::path made = path_ / std::to_string(folders_++);
  if (::mkdir(made.c_str(), S_IRWXU) == 0)
    return made;
  const int err = errno;
  if (err == ENOENT)
    owner_.reset();  // somebody has removed it: the next call makes another
  return posix_error("mkdir", made, err);
}

std::optional<Given> PrivateFolder::known(const Digest& key) {
  const MutexLock lock(private_mutex());
  const auto found = known_.find(key);
  if (found == known_.end() || !owner_ || !owner_->is_this())
    return std::nullopt;
  const auto& [given, stamps] = found->second;
  for (std::size_t i = 0; i < stamps.size(); ++i) {
    if (stamp_at(given.folder / given.names[i]) != stamps[i]) {
      log(LogLevel::kWarning,
          {"somebody has changed ", (given.folder / given.names[i]).native(),
           ", which is written once more, elsewhere"});
      known_.erase(found);
      return std::nullopt;
    }
  }
  return given;
}

Result<Given> PrivateFolder::give(const cache::StoredObject& object) {
  if (auto given = known(object.key()))
    return *std::move(given);
  Known made{.given = {.folder = KILN_TRY(new_folder()), .names = {}}, .stamps = {}};
  auto& [folder, names] = made.given;
  KILN_TRY(write(folder, KILN_TRY(decode_files(object.payload())), names));
  const std::string source = KILN_TRY(object.source());
  KILN_TRY(write(folder, KILN_TRY(decode_files(as_bytes(source))), names));
  std::ranges::sort(names);
  for (const std::string& name : names) made.stamps.push_back(stamp_at(folder / name));
  const MutexLock lock(private_mutex());
  return known_.try_emplace(object.key(), std::move(made)).first->second.given;
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
