#include "cache/key_file.h"

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "util/absolute_path.h"
#include "util/far_mount.h"
#include "util/left_behind.h"
#include "util/log.h"
#include "util/mutex.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::cache {
namespace {

constexpr std::uint64_t kLargestKeyFile = 4U << 20U;
constexpr std::chrono::milliseconds kMountWait{250};
constexpr std::chrono::seconds kFirstMountWait{2};  // without it there is no trust

Result<std::string> read_text(FileSystem& file_system, const TrustPolicy& trust,
                              const std::filesystem::path& path) {
  KILN_TRY(trust.check_path(file_system, path));
  return read_text_file(path, kLargestKeyFile);
}

}  // namespace

struct KeyFile::State : std::enable_shared_from_this<State> {
  State(FileSystem& files, TrustPolicy policy, const std::filesystem::path& named,
        std::function<Clock::time_point()> clock)
      : file_system(files),
        trust(std::move(policy)),
        path(absolute_path(named)),
        now(std::move(clock)) {}

  void look() KILN_REQUIRES(mutex) {
    if (is_silent)
      return;
    if (!std::exchange(is_located, true))
      is_far = far_mount_of(path).has_value();
    // Neither holds `mutex` in a call that is left behind.
    const auto read = [self = shared_from_this()] {
      return read_text(self->file_system, self->trust, self->path);
    };
    if (!is_far)
      return take(read());
    auto text = call_or_leave<Result<std::string>>(
        read, keys ? kMountWait : kFirstMountWait,
        [self = shared_from_this()](bool silent) { self->is_silent = silent; });
    take(text ? *std::move(text)
              : fail(ErrorCode::kIo, path.native() + ": its mount gives no answer"));
  }

  void take(Result<std::string> text) KILN_REQUIRES(mutex) {
    if (text)
      read_at = std::chrono::system_clock::now();
    if (text && keys && *text == last)
      return;
    if (!text && text.error().code == ErrorCode::kIo && keys) {
      if (!std::exchange(has_warned, true))
        log(LogLevel::kWarning,
            {"the key file ", path.native(),
             " cannot be read again, and its keys as of ", format_time(read_at),
             " stay in use: ", text.error().message});
      return;
    }
    auto parsed = text ? about(path.native(), parse_trusted_keys(*text))
                       : Result<TrustedKeys>(tl::unexpect, text.error());
    if (parsed) {
      last = *std::move(text);
      keys = std::make_shared<const TrustedKeys>(*std::move(parsed));
      return;
    }
    if (keys)
      log(LogLevel::kWarning, {"no signature counts until the key file is good again: ",
                               parsed.error().message});
    keys = tl::unexpected(std::move(parsed).error());
  }

  FileSystem& file_system;
  const TrustPolicy trust;
  const std::filesystem::path path;
  const std::function<Clock::time_point()> now;
  std::atomic<bool> is_silent{false};
  Mutex mutex;
  bool is_located KILN_GUARDED_BY(mutex) = false;
  bool is_far KILN_GUARDED_BY(mutex) = false;
  std::optional<Clock::time_point> next_look KILN_GUARDED_BY(mutex);
  std::string last KILN_GUARDED_BY(mutex);
  std::chrono::system_clock::time_point read_at KILN_GUARDED_BY(mutex);
  bool has_warned KILN_GUARDED_BY(mutex) = false;
  Result<Keys> keys KILN_GUARDED_BY(mutex) = fail(ErrorCode::kIo, "");
};

KeyFile::KeyFile(FileSystem& file_system, TrustPolicy trust,
                 const std::filesystem::path& path,
                 std::function<Clock::time_point()> now)
    : state_(std::make_shared<State>(file_system, std::move(trust), path,
                                     std::move(now))) {}

Result<KeyFile::Keys> KeyFile::keys() {
  const MutexLock lock(state_->mutex);
  const auto now = state_->now();
  if (!state_->next_look || now >= *state_->next_look) {
    state_->next_look = now + kPause;
    state_->look();
  }
  return state_->keys;
}

}  // namespace kiln::cache
