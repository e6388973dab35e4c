#include "standin/private_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "standin/open_file.h"

namespace kiln::standin {
namespace {

constexpr const char* kTemporary = ".new-";
// A file that nobody has finished is left by a process that was killed.
constexpr time_t kUnfinishedSeconds = 60;
// Of libraries that are gone, and of other versions of Kiln; one in use is made again.
constexpr time_t kUnusedSeconds = 30L * 24 * 60 * 60;

/// Whether only this user, or root, can change what is in this folder, which has no
/// links in its path. In a folder like /tmp others can remove nothing.
bool is_safe_ancestor(const char* path) {
  struct stat found {};
  return lstat(path, &found) == 0 && S_ISDIR(found.st_mode) &&
         (found.st_uid == 0 || found.st_uid == geteuid()) &&
         ((found.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (found.st_mode & S_ISVTX) != 0);
}

bool has_safe_ancestors(char* path) {
  for (char* slash = path + 1; (slash = std::strchr(slash, '/')) != nullptr; ++slash) {
    *slash = '\0';
    const bool is_safe = is_safe_ancestor(path);
    *slash = '/';
    if (!is_safe)
      return false;
  }
  return is_safe_ancestor("/");
}

/// Opens a folder of this user alone, which it makes if there is none, and writes its
/// path without links.
bool open_folder(const char* wanted, OpenFile& folder, char* path) {
  mkdir(wanted, S_IRWXU);  // if it fails, the folder is there or cannot be opened
  folder.open(wanted, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  const struct stat* found = folder.stat();
  return found != nullptr && found->st_uid == geteuid() &&
         (found->st_mode & (S_IRWXG | S_IRWXO)) == 0 && folder.path(path) &&
         has_safe_ancestors(path);
}

/// Whether the file is there, is whole, and may be mapped as code: not where the folder
/// is mounted noexec.
bool is_there(const OpenFile& folder, const File& file) {
  OpenFile opened;
  opened.open(folder.fd(), file.name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  const struct stat* found = opened.stat();
  if (found == nullptr || !S_ISREG(found->st_mode) || found->st_uid != geteuid() ||
      static_cast<std::size_t>(found->st_size) != file.size)
    return false;
  void* bytes =
      mmap(nullptr, file.size, PROT_READ | PROT_EXEC, MAP_PRIVATE, opened.fd(), 0);
  if (bytes == MAP_FAILED)
    return false;
  const bool is_equal = std::memcmp(bytes, file.bytes, file.size) == 0;
  munmap(bytes, file.size);
  return is_equal;
}

/// Writes it under a name that no other process has, and gives it its own when it is
/// whole. A damaged file of that name is replaced; one that another process has just
/// written stays, since the loader takes two files for two libraries.
void write_file(const OpenFile& folder, const File& file) {
  std::uint64_t random = 0;
  char temporary[64];
  if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
    random = static_cast<std::uint64_t>(getpid());
  std::snprintf(temporary, sizeof temporary, "%s%016llx", kTemporary,
                static_cast<unsigned long long>(random));
  OpenFile made;
  made.open(folder.fd(), temporary,
            O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC);
  if (made.fd() < 0)
    return;
  if (write_all(made.fd(), file.bytes, file.size) &&
      linkat(folder.fd(), temporary, folder.fd(), file.name, 0) != 0 &&
      !is_there(folder, file))
    renameat(folder.fd(), temporary, folder.fd(), file.name);
  unlinkat(folder.fd(), temporary, 0);
}

void remove_old(const OpenFile& folder, const char* name, time_t now) {
  struct stat found {};
  if (fstatat(folder.fd(), name, &found, AT_SYMLINK_NOFOLLOW) != 0 ||
      !S_ISREG(found.st_mode))
    return;
  const bool is_unfinished =
      std::strncmp(name, kTemporary, std::strlen(kTemporary)) == 0;
  if (now - found.st_mtime > (is_unfinished ? kUnfinishedSeconds : kUnusedSeconds))
    unlinkat(folder.fd(), name, 0);
}

/// The system call itself: readdir() would allocate memory.
void remove_all_old(const OpenFile& folder) {
  alignas(dirent64) char entries[4096];
  const time_t now = time(nullptr);
  for (;;) {
    const long size = syscall(SYS_getdents64, folder.fd(), entries, sizeof entries);
    if (size <= 0)
      return;
    for (long at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      remove_old(folder, entry->d_name, now);
      at += entry->d_reclen;
    }
  }
}

bool publish_in(const char* wanted, const File& file, char* path) {
  OpenFile folder;
  if (!open_folder(wanted, folder, path))
    return false;
  if (!is_there(folder, file)) {
    remove_all_old(folder);
    write_file(folder, file);
    if (!is_there(folder, file))
      return false;
  }
  const std::size_t length = std::strlen(path);
  return static_cast<std::size_t>(std::snprintf(path + length, PATH_MAX - length, "/%s",
                                                file.name)) < PATH_MAX - length;
}

}  // namespace

bool publish(const File& file, char* path) {
  static char wanted[PATH_MAX];  // the loader's lock is held; a thread's stack is small
  // Nobody changes this libc's environment. NOLINTNEXTLINE(concurrency-mt-unsafe)
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/' &&
      std::snprintf(wanted, sizeof wanted, "%s/kiln-standin", runtime) < PATH_MAX &&
      publish_in(wanted, file, path))
    return true;
  for (const char* folder : {"/tmp", "/var/tmp"}) {
    std::snprintf(wanted, sizeof wanted, "%s/kiln-standin-%u", folder, geteuid());
    if (publish_in(wanted, file, path))
      return true;
  }
  return false;
}

}  // namespace kiln::standin
