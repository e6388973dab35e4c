// KILN_NVRTC_STANDIN=trace, and =trace:FILE: what the audit module and the stand-ins
// tell. Of both, in a process of another, with no library but libc.

#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "standin/open_file.h"

namespace kiln::standin {

inline constexpr const char* kModeVariable = "KILN_NVRTC_STANDIN";

/// Where lines go: "" for stderr; null: nothing is told.
[[nodiscard]] inline const char* trace_file() {
  constexpr char kTrace[] = "trace";
  constexpr std::size_t kLength = sizeof kTrace - 1;
  // Nobody but the program changes it. NOLINTNEXTLINE(concurrency-mt-unsafe)
  const char* mode = std::getenv(kModeVariable);
  if (mode == nullptr || std::strncmp(mode, kTrace, kLength) != 0)
    return nullptr;
  if (mode[kLength] == '\0')
    return "";
  return mode[kLength] == ':' ? mode + kLength + 1 : nullptr;
}

/// In one write, so that lines of several processes do not mix. A file that cannot be
/// opened costs the line.
inline void tell(const char* file, const char* line) {
  const bool is_stderr = file[0] == '\0';
  const int fd = is_stderr ? STDERR_FILENO
                           : open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC,
                                  S_IRUSR | S_IWUSR);
  if (fd < 0)
    return;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(line);
  static_cast<void>(write_all(fd, bytes, std::strlen(line)));
  if (!is_stderr)
    close(fd);
}

}  // namespace kiln::standin
