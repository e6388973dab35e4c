#include "tests/bench/floors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdint>
#include <memory>

#include "util/posix_error.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln::bench {
namespace {

// Where the compiler cannot see that nobody looks.
void use(std::uint64_t value) {
  asm volatile("" : : "r"(value) : "memory");
}

Result<void> read_and_hash_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0)
    return posix_error("open", path, errno);
  const auto size = static_cast<std::size_t>(info.st_size);
  const auto bytes = std::make_unique_for_overwrite<std::byte[]>(size);
  if (::read(file.get(), bytes.get(), size) != info.st_size)
    return posix_error("read", path, errno);
  use(XXH3_128bits(bytes.get(), size).low64);
  return {};
}

Result<void> write_temporary(const std::string& path, ByteView bytes) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file)
    return posix_error("create", path, errno);
  if (::write(file.get(), bytes.data(), bytes.size()) !=
          static_cast<ssize_t>(bytes.size()) ||
      ::fdatasync(file.get()) != 0 || ::close(file.release()) != 0)
    return posix_error("write", path, errno);
  return {};
}

Result<void> check(const compile::Nvrtc& nvrtc, nvrtcResult result, const char* call) {
  if (result == NVRTC_SUCCESS)
    return {};
  return tl::unexpected(compile::nvrtc_error(nvrtc, result, call, {}));
}

/// One of NVRTC's results: its size, then its bytes.
template <typename GetSize, typename Get>
Result<void> fetch(const compile::Nvrtc& nvrtc, nvrtcProgram program, GetSize get_size,
                   Get get) {
  std::size_t size = 0;
  KILN_TRY(check(nvrtc, get_size(program, &size), "size"));
  std::string bytes(size, '\0');
  return check(nvrtc, get(program, bytes.data()), "get");
}

}  // namespace

Result<void> read_and_hash(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) KILN_TRY(read_and_hash_file(path));
  return {};
}

Result<void> stat_all(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0)
      return posix_error("stat", path, errno);
    use(info.st_ino);
  }
  return {};
}

Result<void> write_and_link(const std::string& folder, const std::string& name,
                            ByteView bytes) {
  const std::string temporary = folder + "/.bench-temporary";
  KILN_TRY(write_temporary(temporary, bytes));
  const int linked = ::link(temporary.c_str(), (folder + "/" + name).c_str());
  if (linked != 0 || ::unlink(temporary.c_str()) != 0)
    return posix_error("link", name, errno);
  return {};
}

Result<void> compile_bare(const compile::Nvrtc& nvrtc, const compile::CompileJob& job) {
  std::vector<const char*> options;
  for (const std::string& option : job.options) options.push_back(option.c_str());
  for (const std::string& option : compile::log_options())
    options.push_back(option.c_str());
  nvrtcProgram program = nullptr;
  KILN_TRY(check(nvrtc,
                 nvrtc.create_program(&program, job.source.c_str(), "kernel.cu", 0,
                                      nullptr, nullptr),
                 "nvrtcCreateProgram"));
  KILN_TRY(check(
      nvrtc,
      nvrtc.compile_program(program, static_cast<int>(options.size()), options.data()),
      "nvrtcCompileProgram"));
  KILN_TRY(fetch(nvrtc, program, nvrtc.log_size, nvrtc.log));
  KILN_TRY(fetch(nvrtc, program, nvrtc.cubin_size, nvrtc.cubin));
  KILN_TRY(fetch(nvrtc, program, nvrtc.ptx_size, nvrtc.ptx));
  return check(nvrtc, nvrtc.destroy_program(&program), "nvrtcDestroyProgram");
}

}  // namespace kiln::bench
