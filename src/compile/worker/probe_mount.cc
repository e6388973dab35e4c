#include "compile/worker/probe_mount.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <tuple>

#include "util/unique_fd.h"

namespace kiln::compile {

void probe_mount(const char* mount, const char* place) {
  struct statfs info {};
  std::ignore = ::statfs(mount, &info);  // no kernel answers this from memory
  const UniqueFd file(::open(place, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat found {};
  if (!file || ::fstat(file.get(), &found) != 0)
    return;
  char byte = 0;
  if (S_ISREG(found.st_mode))
    std::ignore = ::pread(file.get(), &byte, 1, 0);
  else if (DIR* const folder = S_ISDIR(found.st_mode) ? ::opendir(place) : nullptr) {
    std::ignore = ::readdir(folder);
    ::closedir(folder);
  }
}

}  // namespace kiln::compile
