#include "compile/worker/precompiled_file.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>

#include "util/bytes.h"
#include "util/file_stamp.h"
#include "util/posix_error.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln::compile {
namespace {

constexpr std::size_t kStepBytes = std::size_t{256} << 10U;  // stays in a core's cache
constexpr std::chrono::seconds kSettleAge{2};  // of a file that only Kiln writes

/// A file that was found whole, and its stamp.
struct Checked {
  PrecompiledFile file;
  FileStamp stamp;
  friend bool operator==(const Checked&, const Checked&) = default;
};

std::optional<Checked> as_it_is(const PrecompiledFile& file) {
  struct stat info {};
  if (::lstat(file.path.c_str(), &info) != 0)
    return std::nullopt;
  return Checked{file, stamp_of(info)};
}

std::string hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

Result<PrecompiledFile> describe_precompiled(const std::filesystem::path& path,
                                             std::uint64_t nvrtc_address) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd)
    return posix_error("open", path, errno);
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(
      XXH3_createState(), XXH3_freeState);
  if (state == nullptr)
    return fail(ErrorCode::kResourceLimit, "no memory for a digest");
  XXH3_128bits_reset(state.get());
  PrecompiledFile file{.path = path, .nvrtc_address = nvrtc_address};
  Bytes step(kStepBytes);
  while (true) {
    const ssize_t n = ::read(fd.get(), step.data(), step.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return posix_error("read", path, errno);
    if (n == 0)
      break;
    file.bytes += static_cast<std::uint64_t>(n);
    XXH3_128bits_update(state.get(), step.data(), static_cast<std::size_t>(n));
  }
  if (file.bytes == 0)
    return fail(ErrorCode::kCorrupt, "{} is empty", path.native());
  file.xxh3 = hex(XXH3_128bits_digest(state.get()));
  return file;
}

PrecompiledUse check_precompiled(const PrecompiledFile& file,
                                 std::uint64_t nvrtc_address) {
  if (file.nvrtc_address != nvrtc_address)
    return PrecompiledUse::kElsewhere;
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static std::optional<Checked> checked;  // a worker calls this on one thread
  const auto now = as_it_is(file);        // before it is read
  if (now && now == checked)
    return PrecompiledUse::kUsed;
  const auto read_at = std::chrono::system_clock::now();
  const bool is_whole = describe_precompiled(file.path, nvrtc_address) == file;
  checked = is_whole && now && is_settled(now->stamp, read_at, kSettleAge)
                ? now
                : std::nullopt;
  return is_whole ? PrecompiledUse::kUsed : PrecompiledUse::kDamaged;
}

bool take_message(std::string& log, std::string_view doing,
                  const std::filesystem::path& path) {
  // "kernel.cu": using precompiled header file "/…/headers"
  const auto text =
      fmt::format("{} precompiled header file \"{}\"\n", doing, path.native());
  const std::size_t at = log.find(text);
  if (at == std::string::npos)
    return false;
  const std::size_t begin = at == 0 ? 0 : log.rfind('\n', at - 1) + 1;
  std::size_t end = at + text.size();
  if (end < log.size() && log[end] == '\n')
    ++end;  // the empty line behind it
  log.erase(begin, end - begin);
  return true;
}

}  // namespace kiln::compile
