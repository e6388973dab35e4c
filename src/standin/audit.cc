// libkiln-audit.so, a module for the loader's LD_AUDIT (rtld-audit(7)): where a program
// would load an NVRTC, it loads the stand-in of that library. Lives in a name space of
// its own, with a libc of its own, which has the environment of the program's start.
// Not certain that a library can have a stand-in, it leaves the loader alone.

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "standin/elf_image.h"
#include "standin/identity.h"
#include "standin/open_file.h"
#include "standin/private_folder.h"
#include "standin/standin_image.h"
#include "standin/trace.h"

namespace kiln::standin {
namespace {

// Since glibc 2.35. Before, every call through a PLT took a long way beneath an audit
// module.
constexpr unsigned kInterface = 2;

bool is_off() {
  // Nobody changes this libc's environment. NOLINTNEXTLINE(concurrency-mt-unsafe)
  const char* mode = std::getenv(kModeVariable);
  return mode != nullptr && std::strcmp(mode, "off") == 0;
}

bool begins_with(const char* text, const char* prefix) {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

/// Names that an NVRTC may have: libnvrtc.so.13, libnvrtc.alt.so.13, and those of
/// packages, such as libnvrtc-672ee683.so.11.2.
bool may_be_nvrtc(const char* path) {
  const char* last = std::strrchr(path, '/');
  return last != nullptr && begins_with(last, "/libnvrtc") &&
         !begins_with(last, "/libnvrtc-builtins") &&
         std::strstr(path, kUncaught) == nullptr;
}

/// Whether the real library searches, which a stand-in has opened: the cookie is the
/// address of the searching library, since this module sets no other.
bool is_uncaught(const uintptr_t* cookie) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the interface's type
  const auto* searching = reinterpret_cast<const link_map*>(*cookie);
  return searching != nullptr && searching->l_name != nullptr &&
         std::strstr(searching->l_name, kUncaught) != nullptr;
}

/// Memory from the system: malloc's is not needed for anything else.
class Mapping {
 public:
  Mapping(std::size_t size, int protection, int flags, int fd)
      : bytes_(size == 0 ? MAP_FAILED : mmap(nullptr, size, protection, flags, fd, 0)),
        size_(size) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (is_there())
      munmap(bytes_, size_);
  }
  [[nodiscard]] bool is_there() const { return bytes_ != MAP_FAILED; }
  [[nodiscard]] unsigned char* bytes() const {
    return static_cast<unsigned char*>(bytes_);
  }

 private:
  void* bytes_;
  std::size_t size_;
};

/// FNV-1a, for a name: the file's bytes are compared.
std::uint64_t hash_of(const unsigned char* bytes, std::size_t size) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (std::size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3U;
  return hash;
}

/// The path by which the stand-in opens the real library, in the folder in which that
/// looks for its own files.
bool uncaught_path(const char* real, char* path) {
  const char* last = std::strrchr(real, '/');
  if (last == nullptr)
    return false;
  return std::snprintf(path, PATH_MAX, "%.*s%s%s", static_cast<int>(last - real), real,
                       kUncaught, last + 1) < PATH_MAX;
}

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
// Their users have the loader's lock, and perhaps a small stack.
char real_path[PATH_MAX];
char standin_path[PATH_MAX];
char engine_path[PATH_MAX];
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

/// Where libkiln.so is, from this module's folder.
constexpr const char* kEnginePlaces[] = {KILN_ENGINE_PLACES};

/// Writes the path of libkiln.so; "" where there is none: the stand-in then hands each
/// call on.
void find_engine() {
  Dl_info own{};
  engine_path[0] = '\0';
  const char* last = nullptr;
  if (dladdr(reinterpret_cast<const void*>(&kEnginePlaces), &own) != 0)
    last = std::strrchr(own.dli_fname, '/');
  for (const char* place : kEnginePlaces) {
    if (last == nullptr)
      return;
    const int length =
        std::snprintf(engine_path, sizeof engine_path, "%.*s/%s",
                      static_cast<int>(last - own.dli_fname), own.dli_fname, place);
    if (length < PATH_MAX && access(engine_path, R_OK) == 0)
      return;
    engine_path[0] = '\0';
  }
}

/// A stand-in of this process alone, where no private folder can have it: no /tmp, one
/// mounted noexec, a full disk, a container whose root user is another one's.
struct MemoryFile {
  dev_t real_device;
  ino_t real_inode;
  int fd;
  ino_t inode;  // programs close files that they do not know
};

constexpr std::size_t kMostFiles = 8;
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): of the process
MemoryFile memory_files[kMostFiles];
std::size_t file_count = 0;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

bool is_still_open(const MemoryFile& file) {
  struct stat found {};
  return fstat(file.fd, &found) == 0 && found.st_ino == file.inode &&
         found.st_nlink == 0;
}

int make_file(const unsigned char* bytes, std::size_t size) {
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

MemoryFile* find_file(const struct stat& real) {
  for (std::size_t i = 0; i < file_count; ++i) {
    if (memory_files[i].real_device == real.st_dev &&
        memory_files[i].real_inode == real.st_ino)
      return &memory_files[i];
  }
  return file_count == kMostFiles ? nullptr : &memory_files[file_count];
}

/// Writes the bytes to a file once for each `real`, since the loader takes two files
/// for two libraries. False if that fails; else `path` is valid until the process
/// closes the file.
bool publish_in_memory(const struct stat& real, const unsigned char* bytes,
                       std::size_t size, char* path) {
  MemoryFile* file = find_file(real);
  if (file == nullptr)
    return false;
  const bool is_new = file == &memory_files[file_count];
  if (is_new || !is_still_open(*file)) {
    struct stat made {};
    const int fd = make_file(bytes, size);
    if (fd < 0 || fstat(fd, &made) != 0)
      return false;
    *file = {real.st_dev, real.st_ino, fd, made.st_ino};
    file_count += is_new ? 1 : 0;
  }
  // Spelled as no program spells it: the loader knows a library by its path, too.
  std::snprintf(path, PATH_MAX, "/proc/self/.//fd//%d", file->fd);
  return true;
}

/// The path of the stand-in for the library in `file`; null, and why there is none.
const char* standin_for(const OpenFile& file, const char*& why) {
  const struct stat& real = *file.stat();
  const auto size = static_cast<std::size_t>(real.st_size);
  const Mapping library(size, PROT_READ, MAP_PRIVATE, file.fd());
  const Mapping copy(standin_size(), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1);
  ElfImage image;
  why = "it cannot be read";
  if (!library.is_there() || !copy.is_there() || !file.path(standin_path) ||
      !uncaught_path(standin_path, real_path))
    return nullptr;
  why = "it is no shared library for this machine";
  if (!image.parse(library.bytes(), size))
    return nullptr;
  find_engine();
  why = make_standin(copy.bytes(), image, real_path, engine_path);
  if (why != nullptr)
    return nullptr;
  char name[128];
  std::snprintf(name, sizeof name, "%016llx-%.64s",
                static_cast<unsigned long long>(hash_of(copy.bytes(), standin_size())),
                image.soname());
  why = "there is no place for a file that may be run";
  const bool is_there =
      publish({copy.bytes(), standin_size(), name}, standin_path) ||
      publish_in_memory(real, copy.bytes(), standin_size(), standin_path);
  return is_there ? standin_path : nullptr;
}

const char* caught(const char* name) {
  OpenFile file;
  file.open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // it may be a pipe
  if (file.stat() == nullptr || !S_ISREG(file.stat()->st_mode))
    return name;
  const char* why = nullptr;
  const char* standin = standin_for(file, why);
  const char* trace = trace_file();
  const bool is_short =
      trace != nullptr && trace[0] == '\0';  // its end has a line, too
  if (trace != nullptr && !(standin != nullptr && is_short)) {
    char line[PATH_MAX + 128];
    std::snprintf(line, sizeof line, "kiln: %s %s%s%s\n",
                  standin == nullptr ? "no stand-in for" : "a stand-in for", name,
                  standin == nullptr ? ": " : "", standin == nullptr ? why : "");
    tell(trace, line);
  }
  return standin == nullptr ? name : standin;
}

}  // namespace
}  // namespace kiln::standin

/// Zero, and the loader unloads this module.
extern "C" [[gnu::visibility("default")]] unsigned la_version(unsigned version) {
  using kiln::standin::kInterface;
  return version != kInterface || kiln::standin::is_off() ? 0 : kInterface;
}

/// A name without a folder is one to be searched for: the files that it may mean come
/// one by one, and may not exist.
extern "C" [[gnu::visibility("default")]] char* la_objsearch(const char* name,
                                                             uintptr_t* cookie,
                                                             unsigned) {
  const bool is_left =
      !kiln::standin::may_be_nvrtc(name) || kiln::standin::is_uncaught(cookie);
  return const_cast<char*>(is_left ? name : kiln::standin::caught(name));
}
