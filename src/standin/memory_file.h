// Stand-ins of one process, where no private folder can have them: no /tmp, one mounted
// noexec, a full disk, a container whose root user is another one's.

#pragma once

#include <sys/stat.h>

#include <cstddef>

namespace kiln::standin {

/// Writes the bytes to a file of this process alone, once for each `real`, since the
/// loader takes two files for two libraries. False if that fails; else `path`, of
/// PATH_MAX bytes, is valid until the process closes the file. The caller has the
/// loader's lock.
[[nodiscard]] bool publish_in_memory(const struct stat& real,
                                     const unsigned char* bytes, std::size_t size,
                                     char* path);

}  // namespace kiln::standin
