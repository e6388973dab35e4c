// The audit module's writing of files.

#pragma once

#include <unistd.h>

#include <cstddef>

namespace kiln::standin {

[[nodiscard]] inline bool write_all(int fd, const unsigned char* bytes,
                                    std::size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, bytes, size);
    if (written <= 0)
      return false;
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

}  // namespace kiln::standin
