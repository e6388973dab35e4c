#include "cache/owned_range.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <list>
#include <utility>

#include "util/little_endian.h"
#include "util/mutex.h"
#include "util/quiet_thread.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln::cache {
namespace {

constexpr std::uint32_t kRecordMagic = 0x314B4C4B;  // "KLK1"
constexpr std::size_t kKeyBytes = 16;
constexpr std::size_t kHeartbeatOffset = 48;
constexpr std::uint32_t kTimedOut = 1;  // the last field
constexpr std::uint32_t kKilled = 2;
constexpr std::chrono::seconds kIdleThreadLife{5};

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
    case Phase::kReleased:
      return "released";
  }
  return "in an unknown phase";
}

Bytes OwnerRecord::encode() const {
  Bytes bytes;
  bytes.reserve(kOwnerRecordBytes);
  append_le(bytes, kRecordMagic);
  append_le(bytes, static_cast<std::uint32_t>(pid));
  append_le(bytes, static_cast<std::uint32_t>(phase));
  append_le(bytes, builds_ended);
  append(bytes, key.bytes().first<kKeyBytes>());
  append(bytes, encode_time(started));
  append(bytes, encode_time(phase_started));
  append(bytes, encode_time(heartbeat));
  append_le(bytes, static_cast<std::uint32_t>(
                       std::clamp<std::int64_t>(build_limit.count(), 0, UINT32_MAX)));
  append_le(bytes, std::uint32_t{timed_out ? kTimedOut : killed ? kKilled : 0});
  return bytes;
}

std::optional<OwnerRecord> OwnerRecord::decode(ByteView bytes) {
  if (bytes.size() < kOwnerRecordBytes ||
      load_le<std::uint32_t>(bytes, 0) != kRecordMagic)
    return std::nullopt;
  const auto phase = load_le<std::uint32_t>(bytes, 8);
  if (phase < 1 || phase > static_cast<std::uint32_t>(Phase::kReleased))
    return std::nullopt;
  const auto time_at = [&](std::size_t offset) {
    return std::chrono::nanoseconds(
        static_cast<std::int64_t>(load_le<std::uint64_t>(bytes, offset)));
  };
  OwnerRecord record;
  record.pid = static_cast<pid_t>(load_le<std::uint32_t>(bytes, 4));
  record.phase = static_cast<Phase>(phase);
  record.builds_ended = load_le<std::uint32_t>(bytes, 12);
  std::array<std::byte, Digest::kSize> key{};
  std::ranges::copy(bytes.subspan(16, kKeyBytes), key.begin());
  record.key = Digest(key);
  record.started = time_at(32);
  record.phase_started = time_at(40);
  record.heartbeat = time_at(kHeartbeatOffset);
  record.build_limit = std::chrono::milliseconds(load_le<std::uint32_t>(bytes, 56));
  record.timed_out = load_le<std::uint32_t>(bytes, 60) == kTimedOut;
  record.killed = load_le<std::uint32_t>(bytes, 60) == kKilled;
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
  FileLock range;
  OwnerRecord record;
  std::chrono::milliseconds interval;
  std::chrono::steady_clock::time_point due;
  bool is_after_killed;

  void write_record() const { range.write(record.encode(), 0); }
  void write_heartbeat() const {
    range.write(encode_time(record.heartbeat), kHeartbeatOffset);
  }
  void write_phase(Phase phase) {
    record.phase = phase;
    record.phase_started = record.heartbeat = boot_time_now();
    write_record();
  }

  class Heartbeats;
};

/// The thread that writes the heartbeats of all records that this process holds. Never
/// destroyed: the thread may outlive main.
class OwnedRange::Held::Heartbeats {
 public:
  static Heartbeats& instance() {
    // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): has a mutex
    static auto* const heartbeats = new Heartbeats;
    return *heartbeats;
  }

  Mutex mutex;

  void add(Held* held) KILN_REQUIRES(mutex) {
    held_.push_back(held);
    start_thread();
    wake_->notify_one();
  }
  void remove(Held* held) KILN_REQUIRES(mutex) { held_.remove(held); }

 private:
  Heartbeats() {
    ::pthread_atfork([] { instance().before_fork(); }, [] { instance().in_parent(); },
                     [] { instance().in_child(); });
  }

  // Clang's analysis cannot see that the mutex stays locked between the handlers.
  void before_fork() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) { mutex.lock(); }
  void in_parent() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) { mutex.unlock(); }
  void in_child() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
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

void OwnedRange::Release::operator()(Held* held) const noexcept {
  const std::unique_ptr<Held> last(held);  // unlocks after the record is written
  if (!held->range.held())
    return;
  auto& heartbeats = Held::Heartbeats::instance();
  const MutexLock lock(heartbeats.mutex);
  heartbeats.remove(held);
  held->write_phase(Phase::kReleased);
}

Result<std::optional<OwnedRange>> OwnedRange::try_own(
    const Place& place, OwnerRecord record, std::chrono::milliseconds heartbeat) {
  auto lock = KILN_TRY(
      FileLock::try_lock({place.file_system, place.file,
                          place.record * kOwnerRecordBytes, kOwnerRecordBytes}));
  if (!lock)
    return std::nullopt;
  std::array<std::byte, kOwnerRecordBytes> old{};
  bool is_after_killed = false;
  if (lock->read(old.data(), old.size(), 0)) {
    const auto last = OwnerRecord::decode(old).value_or(OwnerRecord());
    const bool is_of_key = last.has_key(record.key);
    record.builds_ended = is_of_key ? last.builds_ended : 0;
    record.timed_out =
        is_of_key && last.timed_out && last.build_limit == record.build_limit;
    is_after_killed = is_of_key && last.killed;
  }
  record.pid = ::getpid();
  record.started = boot_time_now();
  auto held = std::make_unique<Held>(Held{*std::move(lock), record, heartbeat,
                                          std::chrono::steady_clock::now() + heartbeat,
                                          is_after_killed});
  held->write_phase(record.phase);
  auto& heartbeats = Held::Heartbeats::instance();
  const MutexLock guard(heartbeats.mutex);
  heartbeats.add(held.get());
  OwnedRange owned;
  owned.held_.reset(held.release());
  return owned;
}

std::optional<OwnerRecord> OwnedRange::owner(const Place& place) {
  FileSystem& files = *place.file_system;
  const int fd = open_lock_file_to_read(files, place.file);
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
  return held_ != nullptr && held_->range.held();
}

OwnerRecord OwnedRange::record() const {
  const MutexLock lock(Held::Heartbeats::instance().mutex);
  return held_->record;
}

bool OwnedRange::is_after_killed() const {
  return held_ != nullptr && held_->is_after_killed;
}

void OwnedRange::set_phase(Phase phase) {
  if (!held())
    return;
  const MutexLock lock(Held::Heartbeats::instance().mutex);
  held_->write_phase(phase);
}

void OwnedRange::end_build(BuildEnd end) {
  if (held()) {
    const MutexLock lock(Held::Heartbeats::instance().mutex);
    held_->record.builds_ended += end == BuildEnd::kKilled ? 0 : 1;
    held_->record.timed_out = end == BuildEnd::kTimedOut;
    held_->record.killed = end == BuildEnd::kKilled;
  }
  release();  // writes the record
}

}  // namespace kiln::cache
