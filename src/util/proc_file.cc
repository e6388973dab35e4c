#include "util/proc_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "util/unique_fd.h"

namespace kiln {

std::optional<std::string> read_proc_file(const std::filesystem::path& path) {
  constexpr std::size_t kMaxBytes = 64U << 10U;
  constexpr std::size_t kStepBytes = 4096;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file)
    return std::nullopt;
  std::string text;
  while (text.size() < kMaxBytes) {
    const std::size_t begun = text.size();
    text.resize(begun + kStepBytes);
    const ssize_t n = ::read(file.get(), text.data() + begun, kStepBytes);
    const int error = errno;
    text.resize(begun + static_cast<std::size_t>(n > 0 ? n : 0));
    if (n < 0 && error != EINTR)
      return std::nullopt;
    if (n == 0)
      break;
  }
  return text;
}

std::uint64_t resident_bytes_in(std::string_view statm) {
  // Total and resident size in pages; proc(5) documents it.
  const auto space = statm.find(' ');
  if (space == std::string_view::npos)
    return 0;
  std::uint64_t pages = 0;
  std::from_chars(statm.data() + space + 1, statm.data() + statm.size(), pages);
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace kiln
