// Loaded in front of a program with LD_PRELOAD, for what no test can have otherwise:
//   KILN_PRELOAD_NETWORK=DIR   statfs says that DIR is on NFS; lock calls take an hour
//   KILN_PRELOAD_LOCKS=DIR     every lock call on a file below DIR is written down ...
//   KILN_PRELOAD_RECORD=FILE   ... here, a line each, before it is made
//   KILN_PRELOAD_LATE=DIR      what is new below DIR is opened only after a while, and
//                              empty folders stay: a distributed file system's ways
//   KILN_PRELOAD_CLOCK=SECONDS the time of day is that much later; other clocks are not
// What a statically linked program or a bare system call does is not seen: a test shows
// first that the record has what it must have.

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kNfs = 0x6969;
constexpr unsigned kHour = 3600;

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

bool is_below(const char* path, const char* variable) {
  const char* const folder = std::getenv(variable);
  if (folder == nullptr)
    return false;
  const std::size_t size = std::strlen(folder);
  return std::strncmp(path, folder, size) == 0 &&
         (path[size] == '/' || path[size] == '\0');
}

using Path = std::array<char, PATH_MAX>;

/// Of an open file; "" if it has none.
Path path_of(int fd) {
  Path path{};
  std::array<char, 32> link{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
  if (::readlink(link.data(), path.data(), path.size() - 1) < 0)
    path[0] = '\0';
  return path;
}

void before_lock(const char* call, int fd) {
  const Path path = path_of(fd);
  const char* const record = std::getenv("KILN_PRELOAD_RECORD");
  if (record != nullptr && is_below(path.data(), "KILN_PRELOAD_LOCKS")) {
    std::array<char, PATH_MAX + 64> line{};
    const int size =
        std::snprintf(line.data(), line.size(), "%s %s\n", call, path.data());
    const int file = ::open(record, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (::write(file, line.data(), static_cast<std::size_t>(size)) != size)
      std::abort();  // a call that is not written down would prove a lie
    ::close(file);
  }
  if (is_below(path.data(), "KILN_PRELOAD_NETWORK"))
    ::sleep(kHour);
}

/// A file that was renamed or linked a moment ago, and that this opens to read.
bool is_too_new(int fd, int flags) {
  constexpr long kMoment = 30'000'000;
  struct stat info {};
  struct timespec now {};
  if ((flags & (O_CREAT | O_DIRECTORY)) != 0 ||
      std::getenv("KILN_PRELOAD_LATE") == nullptr ||
      !is_below(path_of(fd).data(), "KILN_PRELOAD_LATE") || ::fstat(fd, &info) != 0 ||
      !S_ISREG(info.st_mode))
    return false;
  ::syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  return (now.tv_sec - info.st_ctim.tv_sec) * 1'000'000'000 + now.tv_nsec -
             info.st_ctim.tv_nsec <
         kMoment;
}

int opened(const char* name, int folder, const char* path, int flags, mode_t mode) {
  const int fd = next<int(int, const char*, int, ...)>(name)(folder, path, flags, mode);
  if (fd < 0 || !is_too_new(fd, flags))
    return fd;
  ::close(fd);
  errno = ENOENT;
  return -1;
}

bool is_lock(int command) {
  return command == F_SETLK || command == F_SETLKW || command == F_GETLK ||
         command == F_OFD_SETLK || command == F_OFD_SETLKW || command == F_OFD_GETLK;
}

template <typename Info>
int told(int result, const char* path, Info* info) {
  if (result == 0 && is_below(path, "KILN_PRELOAD_NETWORK"))
    info->f_type = kNfs;
  return result;
}

time_t clock_offset() {
  const char* const seconds = std::getenv("KILN_PRELOAD_CLOCK");
  return seconds != nullptr ? std::atol(seconds) : 0;
}

int any_fcntl(const char* name, int fd, int command, void* argument) {
  if (is_lock(command))
    before_lock("fcntl", fd);
  return next<int(int, int, ...)>(name)(fd, command, argument);
}

}  // namespace

// Names, types and argument names are those of the C library.
// NOLINTBEGIN(readability-identifier-naming)
#define KILN_SHOWN extern "C" __attribute__((visibility("default")))

KILN_SHOWN int statfs(const char* path, struct statfs* info) noexcept {
  return told(next<int(const char*, struct statfs*)>("statfs")(path, info), path, info);
}
KILN_SHOWN int statfs64(const char* path, struct statfs64* info) noexcept {
  return told(next<int(const char*, struct statfs64*)>("statfs64")(path, info), path,
              info);
}
KILN_SHOWN int fstatfs(int fd, struct statfs* info) noexcept {
  return told(next<int(int, struct statfs*)>("fstatfs")(fd, info), path_of(fd).data(),
              info);
}
KILN_SHOWN int fstatfs64(int fd, struct statfs64* info) noexcept {
  return told(next<int(int, struct statfs64*)>("fstatfs64")(fd, info),
              path_of(fd).data(), info);
}

KILN_SHOWN int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return any_fcntl("fcntl", fd, command, argument);
}
KILN_SHOWN int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return any_fcntl("fcntl64", fd, command, argument);
}
#define KILN_OPEN(name, ...)                                  \
  va_list arguments;                                          \
  va_start(arguments, flags);                                 \
  const bool has_mode = (flags & (O_CREAT | O_TMPFILE)) != 0; \
  const auto mode = has_mode ? va_arg(arguments, mode_t) : 0; \
  va_end(arguments);                                          \
  return opened(name, __VA_ARGS__, path, flags, mode)
KILN_SHOWN int open(const char* path, int flags, ...) {
  KILN_OPEN("openat", AT_FDCWD);
}
KILN_SHOWN int open64(const char* path, int flags, ...) {
  KILN_OPEN("openat64", AT_FDCWD);
}
KILN_SHOWN int openat(int folder, const char* path, int flags, ...) {
  KILN_OPEN("openat", folder);
}
KILN_SHOWN int openat64(int folder, const char* path, int flags, ...) {
  KILN_OPEN("openat64", folder);
}
KILN_SHOWN int rmdir(const char* path) noexcept {
  if (!is_below(path, "KILN_PRELOAD_LATE"))
    return next<int(const char*)>("rmdir")(path);
  errno = EBUSY;
  return -1;
}

KILN_SHOWN int flock(int fd, int operation) noexcept {
  before_lock("flock", fd);
  return next<int(int, int)>("flock")(fd, operation);
}
KILN_SHOWN int lockf(int fd, int command, off_t size) {
  before_lock("lockf", fd);
  return next<int(int, int, off_t)>("lockf")(fd, command, size);
}
KILN_SHOWN int lockf64(int fd, int command, off64_t size) {
  before_lock("lockf", fd);
  return next<int(int, int, off64_t)>("lockf64")(fd, command, size);
}

KILN_SHOWN int clock_gettime(clockid_t clock, struct timespec* now) noexcept {
  // Not through the C library: it may ask before anything can be looked up.
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
  if (result == 0 && clock == CLOCK_REALTIME)
    now->tv_sec += clock_offset();
  return result;
}
KILN_SHOWN time_t time(time_t* to) noexcept {
  struct timespec now {};
  clock_gettime(CLOCK_REALTIME, &now);
  if (to != nullptr)
    *to = now.tv_sec;
  return now.tv_sec;
}
KILN_SHOWN int gettimeofday(struct timeval* to, void* /*zone*/) noexcept {
  struct timespec now {};
  clock_gettime(CLOCK_REALTIME, &now);
  *to = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}
// NOLINTEND(readability-identifier-naming)
