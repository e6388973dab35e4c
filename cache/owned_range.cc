#include "cache/owned_range.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <list>
#include <tuple>
#include <utility>

#include "util/fork_count.h"
#include "util/little_endian.h"
#include "util/mutex.h"
#include "util/own_path.h"
#include "util/posix_error.h"
#include "util/quiet_thread.h"
#include "util/unique_fd.h"

namespace kiln::cache {
namespace {

constexpr std::uint32_t kRecordMagic = 0x314B4C4B;  // "KLK1"
constexpr std::size_t kKeyBytes = 16;
constexpr std::size_t kHeartbeatOffset = 48;
constexpr std::chrono::seconds kIdleThreadLife{5};
// Another user may put a link or a FIFO here: O_NOFOLLOW refuses the link, O_NONBLOCK
// does not wait for the FIFO.
constexpr int kLockFileFlags = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

bool has_no_locks(int err) {
  return err == -ENOLCK || err == -ENOSYS || err == -EOPNOTSUPP || err == -EINVAL;
}

/// True if a record may be written into the file: regular, our own, and without a
/// second hard link.
bool is_lock_file(FileSystem& files, const struct stat& info,
                  const std::filesystem::path& path) {
  return S_ISREG(info.st_mode) && info.st_nlink <= 1 &&
         is_trusted(info, [&]() -> std::optional<uid_t> {
           struct stat folder {};
           if (files.stat(path.parent_path().c_str(), folder) != 0)
             return std::nullopt;
           return folder.st_uid;
         });
}

tl::unexpected<Error> refused(const std::filesystem::path& path) {
  return fail(
      ErrorCode::kUntrusted,
      fmt::format("{} is not a file of this user alone: delete it", path.native()));
}

/// A file that cannot be opened may be a link, a FIFO or not writable for this user.
tl::unexpected<Error> open_error(FileSystem& files, const std::filesystem::path& path,
                                 int err) {
  struct stat info {};
  if (files.lstat(path.c_str(), info) == 0 && !is_lock_file(files, info, path))
    return refused(path);
  return posix_error("open", path, -err);
}

Bytes encode_time(BootTime time) {
  Bytes bytes;
  append_le(bytes, static_cast<std::uint64_t>(time.count()));
  return bytes;
}

}  // namespace

BootTime boot_time_now() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::kStarting:
      return "starting";
    case Phase::kQueued:
      return "queued for a slot";
    case Phase::kCompiling:
      return "compiling";
    case Phase::kPublishing:
      return "publishing";
  }
  return "in an unknown phase";
}

Bytes OwnerRecord::encode() const {
  Bytes bytes;
  bytes.reserve(kOwnerRecordBytes);
  append_le(bytes, kRecordMagic);
  append_le(bytes, static_cast<std::uint32_t>(pid));
  append_le(bytes, static_cast<std::uint64_t>(phase));
  append(bytes, key.bytes().first<kKeyBytes>());
  append(bytes, encode_time(started));
  append(bytes, encode_time(phase_started));
  append(bytes, encode_time(heartbeat));
  append_le(bytes, static_cast<std::uint64_t>(build_limit.count()));
  return bytes;
}

std::optional<OwnerRecord> OwnerRecord::decode(ByteView bytes) {
  if (bytes.size() < kOwnerRecordBytes ||
      load_le<std::uint32_t>(bytes, 0) != kRecordMagic)
    return std::nullopt;
  const auto phase = load_le<std::uint64_t>(bytes, 8);
  if (phase < 1 || phase > static_cast<std::uint64_t>(Phase::kPublishing))
    return std::nullopt;
  const auto time_at = [&](std::size_t offset) {
    return std::chrono::nanoseconds(
        static_cast<std::int64_t>(load_le<std::uint64_t>(bytes, offset)));
  };
  OwnerRecord record;
  record.pid = static_cast<pid_t>(load_le<std::uint32_t>(bytes, 4));
  record.phase = static_cast<Phase>(phase);
  std::array<std::byte, Digest::kSize> key{};
  std::ranges::copy(bytes.subspan(16, kKeyBytes), key.begin());
  record.key = Digest(key);
  record.started = time_at(32);
  record.phase_started = time_at(40);
  record.heartbeat = time_at(kHeartbeatOffset);
  record.build_limit = std::chrono::milliseconds(
      static_cast<std::int64_t>(load_le<std::uint64_t>(bytes, 56)));
  return record;
}

bool OwnerRecord::same_owner(const OwnerRecord& other) const {
  return pid == other.pid && started == other.started;
}

bool OwnerRecord::has_key(const Digest& other_key) const {
  return std::ranges::equal(key.bytes().first<kKeyBytes>(),
                            other_key.bytes().first<kKeyBytes>());
}

struct OwnedRange::Held {
  FileSystem* file_system;
  int fd;
  std::uint64_t offset;
  OwnerRecord record;
  std::chrono::milliseconds interval;
  std::chrono::steady_clock::time_point due;
  OwnerProcess owner{};

  /// Best effort: a record is a hint.
  void write_record() const {
    std::ignore = file_system->pwrite(fd, record.encode(), offset);
  }
  void write_heartbeat() const {
    std::ignore = file_system->pwrite(fd, encode_time(record.heartbeat),
                                      offset + kHeartbeatOffset);
  }

  class Registry;
};

/// All records that this process holds, and the thread that writes their heartbeats.
/// Never destroyed: the thread may outlive main.
class OwnedRange::Held::Registry {
 public:
  static Registry& instance() {
    // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): has a mutex
    static auto* const registry = new Registry;
    return *registry;
  }

  Mutex mutex;

  void add(Held* held) KILN_REQUIRES(mutex) {
    held_.push_back(held);
    start_thread();
    wake_->notify_one();
  }
  void remove(Held* held) KILN_REQUIRES(mutex) { held_.remove(held); }

 private:
  Registry() {
    // A child shares our locks through its copies of the descriptors and would keep
    // them after our death. So it closes its copies, but unlocks nothing.
    ::pthread_atfork([] { instance().before_fork(); }, [] { instance().in_parent(); },
                     [] { instance().in_child(); });
  }

  // Clang's analysis cannot see that the mutex stays locked between the handlers.
  void before_fork() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) { mutex.lock(); }
  void in_parent() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) { mutex.unlock(); }
  void in_child() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
    for (const Held* held : held_) ::close(held->fd);
    held_.clear();
    has_thread_ = false;
    wake_ = new ConditionVariable;  // the old one's waiter does not exist here
    mutex.unlock();
  }

  void start_thread() KILN_REQUIRES(mutex) {
    if (has_thread_)
      return;
    has_thread_ = start_quiet_thread([this] { run(); }, Thread::kDetached).has_value();
  }

  void run() {
    const MutexLock lock(mutex);
    auto idle_since = std::chrono::steady_clock::now();
    for (;;) {
      const auto now = std::chrono::steady_clock::now();
      auto next = idle_since + kIdleThreadLife;
      if (!held_.empty()) {
        idle_since = now;
        next = now + kIdleThreadLife;
      } else if (now >= next) {
        has_thread_ = false;
        return;
      }
      for (Held* held : held_) {
        if (held->due <= now) {
          held->record.heartbeat = boot_time_now();
          held->write_heartbeat();
          held->due = now + held->interval;
        }
        next = std::min(next, held->due);
      }
      wake_->wait_until(mutex, next);
    }
  }

  ConditionVariable* wake_ KILN_GUARDED_BY(mutex) = new ConditionVariable;
  std::list<Held*> held_ KILN_GUARDED_BY(mutex);
  bool has_thread_ KILN_GUARDED_BY(mutex) = false;
};

OwnedRange::OwnedRange() = default;
OwnedRange::OwnedRange(std::unique_ptr<Held> held) : held_(std::move(held)) {}
OwnedRange::OwnedRange(OwnedRange&&) noexcept = default;

OwnedRange& OwnedRange::operator=(OwnedRange&& other) noexcept {
  if (this != &other) {
    release();
    held_ = std::move(other.held_);
  }
  return *this;
}

OwnedRange::~OwnedRange() {
  release();
}

Result<std::optional<OwnedRange>> OwnedRange::try_own(
    const Place& place, OwnerRecord record, std::chrono::milliseconds heartbeat) {
  constexpr int kFlags = O_RDWR | O_CREAT | kLockFileFlags;
  FileSystem& files = *place.file_system;
  auto& registry = Held::Registry::instance();
  // Held from open to add(), so that no fork happens in between.
  const MutexLock lock(registry.mutex);
  // Each attempt opens its own file description, so that OFD locks also exclude two
  // threads of one process.
  int fd = files.open(place.file.c_str(), kFlags, 0600);
  if (fd == -ENOENT && make_folders(files, place.file.parent_path().native()) == 0)
    fd = files.open(place.file.c_str(), kFlags, 0600);
  if (fd < 0)
    return open_error(files, place.file, fd);
  UniqueFd owner(fd);
  struct stat info {};
  if (files.fstat(fd, info) != 0 || !is_lock_file(files, info, place.file))
    return refused(place.file);
  const std::uint64_t offset = place.record * kOwnerRecordBytes;
  const int locked =
      files.set_lock(fd, RangeLock::kExclusive, offset, kOwnerRecordBytes);
  if (locked == -EAGAIN || locked == -EACCES)
    return std::nullopt;
  if (has_no_locks(locked)) {
    return fail(ErrorCode::kUnavailable,
                posix_error("lock", place.file, -locked).value().message);
  }
  if (locked < 0)
    return posix_error("lock", place.file, -locked);
  record.pid = ::getpid();
  record.started = record.phase_started = record.heartbeat = boot_time_now();
  auto held = std::make_unique<Held>(
      Held{place.file_system, owner.release(), offset, record, heartbeat,
           std::chrono::steady_clock::now() + heartbeat});
  held->write_record();
  registry.add(held.get());
  return OwnedRange(std::move(held));
}

std::optional<OwnerRecord> OwnedRange::owner(const Place& place) {
  FileSystem& files = *place.file_system;
  const int fd = files.open(place.file.c_str(), O_RDONLY | kLockFileFlags, 0);
  if (fd < 0)
    return std::nullopt;
  const UniqueFd closer(fd);
  std::array<std::byte, kOwnerRecordBytes> bytes{};
  if (files.pread(fd, bytes.data(), bytes.size(), place.record * kOwnerRecordBytes) !=
      static_cast<ssize_t>(bytes.size()))
    return std::nullopt;
  return OwnerRecord::decode(bytes);
}

bool OwnedRange::held() const {
  return held_ != nullptr && held_->owner.is_this();
}

void OwnedRange::set_phase(Phase phase) {
  if (!held())
    return;
  const MutexLock lock(Held::Registry::instance().mutex);
  held_->record.phase = phase;
  held_->record.phase_started = held_->record.heartbeat = boot_time_now();
  held_->write_record();
}

void OwnedRange::release() noexcept {
  if (!held()) {
    held_.reset();  // in a forked child the descriptor is closed already
    return;
  }
  auto& registry = Held::Registry::instance();
  const MutexLock lock(registry.mutex);
  registry.remove(held_.get());
  FileSystem& files = *held_->file_system;
  const Bytes nobody(kOwnerRecordBytes);
  std::ignore = files.pwrite(held_->fd, nobody, held_->offset);  // a hint
  // Explicit, because close() alone leaves it locked while a child has a copy of the
  // descriptor. If it fails, waiters go on when the heartbeats stop.
  std::ignore =
      files.set_lock(held_->fd, RangeLock::kUnlock, held_->offset, kOwnerRecordBytes);
  std::ignore = files.close(held_->fd);
  held_.reset();
}

}  // namespace kiln::cache
