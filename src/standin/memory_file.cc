#include "standin/memory_file.h"

#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "standin/write_all.h"

namespace kiln::standin {
namespace {

struct MemoryFile {
  dev_t real_device;
  ino_t real_inode;
  int fd;
  ino_t inode;  // programs close files that they do not know
};

constexpr std::size_t kMost = 8;
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): of the process
MemoryFile files[kMost];
std::size_t file_count = 0;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

bool is_still_open(const MemoryFile& file) {
  struct stat found {};
  return fstat(file.fd, &found) == 0 && found.st_ino == file.inode &&
         found.st_nlink == 0;
}

int make(const unsigned char* bytes, std::size_t size) {
  const int fd = memfd_create("libnvrtc", MFD_CLOEXEC);
  if (fd < 0)
    return -1;
  void* code = MAP_FAILED;
  if (write_all(fd, bytes, size))
    code = mmap(nullptr, size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
  if (code == MAP_FAILED) {
    close(fd);
    return -1;
  }
  munmap(code, size);
  return fd;
}

MemoryFile* find(const struct stat& real) {
  for (std::size_t i = 0; i < file_count; ++i) {
    if (files[i].real_device == real.st_dev && files[i].real_inode == real.st_ino)
      return &files[i];
  }
  return file_count == kMost ? nullptr : &files[file_count];
}

}  // namespace

bool publish_in_memory(const struct stat& real, const unsigned char* bytes,
                       std::size_t size, char* path) {
  MemoryFile* file = find(real);
  if (file == nullptr)
    return false;
  const bool is_new = file == &files[file_count];
  if (is_new || !is_still_open(*file)) {
    struct stat made {};
    const int fd = make(bytes, size);
    if (fd < 0 || fstat(fd, &made) != 0)
      return false;
    *file = {real.st_dev, real.st_ino, fd, made.st_ino};
    file_count += is_new ? 1 : 0;
  }
  // Spelled as no program spells it: the loader knows a library by its path, too.
  std::snprintf(path, PATH_MAX, "/proc/self/.//fd//%d", file->fd);
  return true;
}

}  // namespace kiln::standin
