// <fcntl.h> is left out: under _FORTIFY_SOURCE it defines open() itself.

#include "compile/worker/opened_files.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "util/mutex.h"

namespace kiln::compile {
namespace {

struct Recorder {
  Mutex mutex;
  bool recording KILN_GUARDED_BY(mutex) = false;
  FileReport report KILN_GUARDED_BY(mutex);
  // What is in the report; a path that was missed and then opened is in it twice.
  std::set<std::pair<std::string, FileStamp>> opened KILN_GUARDED_BY(mutex);
  std::unordered_set<std::string> missed KILN_GUARDED_BY(mutex);
  std::size_t bytes KILN_GUARDED_BY(mutex) = 0;

  void clear() KILN_REQUIRES(mutex) {
    report = {};
    opened.clear();
    missed.clear();
    bytes = 0;
  }
};

Recorder& recorder() {
  // Never destroyed: NVRTC may open files until the process ends.
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const instance = new Recorder;
  return *instance;
}

// NVRTC 12.8 opens its own library, whose build id is in the key.
bool is_itself(const char* path, const void* caller) {
  Dl_info info{};
  struct stat library {};
  struct stat file {};
  return ::dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
         ::stat(info.dli_fname, &library) == 0 && ::stat(path, &file) == 0 &&
         library.st_dev == file.st_dev && library.st_ino == file.st_ino;
}

// Kiln's own code reads the build id of a library that has it in no segment, as NVRTC
// 12.4 has.
bool is_of_kiln(const void* caller) {
  Dl_info info{};
  Dl_info own{};
  return ::dladdr(caller, &info) != 0 &&
         ::dladdr(reinterpret_cast<const void*>(&recorder), &own) != 0 &&
         info.dli_fbase == own.dli_fbase;
}

// The LLVM inside NVRTC may read which processor it runs on. No image depends on it.
constexpr std::string_view kProcessor = "/proc/cpuinfo";

enum class Found : std::uint8_t { kFile, kDevice, kNothing };

struct Opened {
  Found what = Found::kNothing;
  FileStamp stamp;  // of a file
};

Opened found(int fd) {
  struct stat info {};
  if (fd < 0 || ::fstat(fd, &info) != 0)
    return {};
  if (S_ISCHR(info.st_mode))
    return {Found::kDevice, {}};
  const auto stamp = S_ISREG(info.st_mode) ? stamp_of(fd) : std::nullopt;
  return stamp ? Opened{Found::kFile, *stamp} : Opened{};
}

// NVRTC passes over everything but files; of a FIFO it would notice that only once some
// process writes to it. So it gets to open no FIFO, and passes over it at once.
bool is_fifo(const char* path) {
  struct stat info {};
  return ::stat(path, &info) == 0 && S_ISFIFO(info.st_mode);
}

void record(const char* name, const Opened& file, const void* caller) {
  const auto& [what, stamp] = file;
  if (what == Found::kDevice || name == kProcessor || is_of_kiln(caller) ||
      (what == Found::kFile && is_itself(name, caller)))
    return;
  Recorder& all = recorder();
  const MutexLock lock(all.mutex);
  if (!all.recording)
    return;
  std::error_code no_directory;  // on error: keep the name as it is
  std::filesystem::path path = std::filesystem::absolute(name, no_directory);
  const bool is_new = what == Found::kFile
                          ? all.opened.emplace(path.native(), stamp).second
                          : all.missed.insert(path.native()).second;
  if (!is_new)
    return;
  if (std::max(all.opened.size(), all.missed.size()) > kMaxReportedFiles ||
      all.bytes + path.native().size() > kMaxReportedBytes) {
    all.report.is_whole = false;
    return;
  }
  all.bytes += path.native().size();
  if (what == Found::kFile)
    all.report.opened.push_back({std::move(path), stamp});
  else
    all.report.missed.push_back(std::move(path));
}

/// The next definition of a function that this program exports too.
template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

constexpr int kHere = -100;     // AT_FDCWD
constexpr int kAccessMode = 3;  // O_ACCMODE; O_RDONLY is 0

struct Call {
  const char* function;
  const void* caller;
};

int open_and_record(Call call, const char* path, int flags, unsigned mode) {
  if ((flags & kAccessMode) == 0 && is_fifo(path)) {
    record(path, {}, call.caller);
    errno = ENXIO;  // as for a socket
    return -1;
  }
  const int fd = real<int(const char*, int, ...)>(call.function)(path, flags, mode);
  const int saved_errno = errno;  // the caller must see the errno of the real call
  if ((flags & kAccessMode) == 0)
    record(path, found(fd), call.caller);
  errno = saved_errno;
  return fd;
}

std::FILE* fopen_and_record(Call call, const char* path, const char* mode) {
  if (mode[0] == 'r' && is_fifo(path)) {
    record(path, {}, call.caller);
    errno = ENXIO;
    return nullptr;
  }
  std::FILE* const file =
      real<std::FILE*(const char*, const char*)>(call.function)(path, mode);
  const int saved_errno = errno;
  if (mode[0] == 'r')
    record(path, found(file == nullptr ? -1 : ::fileno(file)), call.caller);
  errno = saved_errno;
  return file;
}

// NVRTC opens no second name of a file that has #pragma once: it asks for device and
// inode, and passes over it.
int stat_and_record(Call call, int version, const char* path, struct stat* info) {
  const int result =
      real<int(int, const char*, struct stat*)>(call.function)(version, path, info);
  const int saved_errno = errno;
  if (result == 0 && S_ISREG(info->st_mode))
    record(path, {Found::kFile, FileStamps().of(*info, kHere, path)}, call.caller);
  errno = saved_errno;
  return result;
}

/// What a path says of the file that was opened: the stamp of now, if it is that file.
/// A store between open() and read() is seen so.
FileStamp stamp_after(const OpenedFile& file) {
  struct stat info {};
  if (::stat(file.path.c_str(), &info) != 0)
    return *file.stamp;
  FileStamp now = stamp_of(info);
  now.reliable = file.stamp->reliable;
  const bool is_same =
      now.device == file.stamp->device && now.inode == file.stamp->inode;
  return is_same ? now : *file.stamp;
}

}  // namespace

void start_recording_files() {
  Recorder& all = recorder();
  const MutexLock lock(all.mutex);
  all.clear();
  all.recording = true;
}

FileReport stop_recording_files() {
  Recorder& all = recorder();
  const MutexLock lock(all.mutex);
  all.recording = false;
  FileReport report = std::move(all.report);
  all.clear();
  for (OpenedFile& file : report.opened) file.stamp = stamp_after(file);
  return report;
}

}  // namespace kiln::compile

// open() is variadic, __xstat() a name of libc, and these stand in for them.
// NOLINTBEGIN(cert-*,bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {

#define KILN_OPEN(name)                                                               \
  __attribute__((visibility("default"))) int name(const char* path, int flags, ...) { \
    va_list rest;                                                                     \
    va_start(rest, flags);                                                            \
    const auto mode = va_arg(rest, unsigned); /* garbage, unused, without O_CREAT */  \
    va_end(rest);                                                                     \
    return kiln::compile::open_and_record({#name, __builtin_return_address(0)}, path, \
                                          flags, mode);                               \
  }
KILN_OPEN(open)
KILN_OPEN(open64)

#define KILN_FOPEN(name)                                                               \
  __attribute__((visibility("default"))) std::FILE* name(const char* path,             \
                                                         const char* mode) {           \
    return kiln::compile::fopen_and_record({#name, __builtin_return_address(0)}, path, \
                                           mode);                                      \
  }
KILN_FOPEN(fopen)
KILN_FOPEN(fopen64)

// stat() of programs that were linked with a glibc before 2.33.
__attribute__((visibility("default"))) int __xstat(int version, const char* path,
                                                   struct stat* info) {
  return kiln::compile::stat_and_record({"__xstat", __builtin_return_address(0)},
                                        version, path, info);
}

}  // extern "C"
// NOLINTEND(cert-*,bugprone-reserved-identifier,readability-identifier-naming)
