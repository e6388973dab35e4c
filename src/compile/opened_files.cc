// <fcntl.h> is left out: under _FORTIFY_SOURCE it defines open() itself.

#include "compile/opened_files.h"

#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <string_view>
#include <utility>

#include "util/mutex.h"

namespace kiln::compile {
namespace {

struct Recorder {
  Mutex mutex;
  bool recording KILN_GUARDED_BY(mutex) = false;
  std::vector<std::filesystem::path> files KILN_GUARDED_BY(mutex);
};

Recorder& recorder() {
  // Never destroyed: NVRTC may open files until the process ends.
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const instance = new Recorder;
  return *instance;
}

bool is_of_the_system(std::string_view path) {
  return path.starts_with("/dev/") || path.starts_with("/proc/") ||
         path.starts_with("/sys/");
}

void record(const char* name) {
  const int saved_errno = errno;  // belongs to the call that is recorded
  Recorder& all = recorder();
  const MutexLock lock(all.mutex);
  if (all.recording) {
    std::error_code no_directory;  // then the name is kept as it is
    auto path = std::filesystem::absolute(name, no_directory).lexically_normal();
    if (!is_of_the_system(path.native()) &&
        std::find(all.files.begin(), all.files.end(), path) == all.files.end())
      all.files.push_back(std::move(path));
  }
  errno = saved_errno;
}

/// The next definition of a function that this program exports too.
template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

constexpr int kAccessMode = 3;  // O_ACCMODE; O_RDONLY is 0

int open_and_record(const char* function, const char* path, int flags, unsigned mode) {
  const int fd = real<int(const char*, int, ...)>(function)(path, flags, mode);
  if (fd >= 0 && (flags & kAccessMode) == 0)
    record(path);
  return fd;
}

std::FILE* fopen_and_record(const char* function, const char* path, const char* mode) {
  std::FILE* const file =
      real<std::FILE*(const char*, const char*)>(function)(path, mode);
  if (file != nullptr && mode[0] == 'r')
    record(path);
  return file;
}

}  // namespace

void start_recording_opened_files() {
  Recorder& all = recorder();
  const MutexLock lock(all.mutex);
  all.files.clear();
  all.recording = true;
}

std::vector<std::filesystem::path> stop_recording_opened_files() {
  Recorder& all = recorder();
  const MutexLock lock(all.mutex);
  all.recording = false;
  return std::exchange(all.files, {});
}

}  // namespace kiln::compile

// NOLINTBEGIN(cert-dcl50-cpp): open() is variadic, and these stand in for it.
extern "C" {

__attribute__((visibility("default"))) int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = va_arg(rest, unsigned);  // garbage where there is none, and unused
  va_end(rest);
  return kiln::compile::open_and_record("open", path, flags, mode);
}

__attribute__((visibility("default"))) int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = va_arg(rest, unsigned);
  va_end(rest);
  return kiln::compile::open_and_record("open64", path, flags, mode);
}

__attribute__((visibility("default"))) std::FILE* fopen(const char* path,
                                                        const char* mode) {
  return kiln::compile::fopen_and_record("fopen", path, mode);
}

__attribute__((visibility("default"))) std::FILE* fopen64(const char* path,
                                                          const char* mode) {
  return kiln::compile::fopen_and_record("fopen64", path, mode);
}

}  // extern "C"
// NOLINTEND(cert-dcl50-cpp)
