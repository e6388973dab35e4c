// The folder with the stand-ins of one user: on this machine, for all of its processes.
// Another user could make the loader run any code by a file here, so each folder on the
// way is looked at, and each file is compared whole before its path is given away.

#pragma once

#include <cstddef>

namespace kiln::standin {

struct File {
  const unsigned char* bytes;
  std::size_t size;
  const char* name;  // the same only for equal bytes
};

/// Puts the file into the first of these folders that can have it:
/// $XDG_RUNTIME_DIR/kiln-standin, /tmp/kiln-standin-UID, /var/tmp/kiln-standin-UID. Any
/// number of processes may do so at once, and may end at any moment. False if there is
/// no such folder; else `path`, of PATH_MAX bytes, is the file's.
[[nodiscard]] bool publish(const File& file, char* path);

}  // namespace kiln::standin
