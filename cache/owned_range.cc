#include "cache/owned_range.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <list>
#include <utility>

#include "util/fork_count.h"
#include "util/little_endian.h"
#include "util/mutex.h"
#include "util/quiet_thread.h"
#include "util/try.h"
#include "util/unique_fd.h"
#include "util/words.h"

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
  constexpr std::string_view kUnknown = "in an unknown phase";
  return word_of(phase,
                 {kUnknown, "starting", "queued for a slot", "compiling", "publishing",
                  "released"},
                 kUnknown);
}

Bytes OwnerRecord::encode() const {
  const auto& [pid, phase, key, started, phase_started, heartbeat, build_limit,
               builds_ended, timed_out, killed] = *this;
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
  const auto phase_number = load_le<std::uint32_t>(bytes, 8);
  if (phase_number < 1 || phase_number > static_cast<std::uint32_t>(Phase::kReleased))
    return std::nullopt;
  const auto time_at = [&](std::size_t offset) {
    return std::chrono::nanoseconds(
        static_cast<std::int64_t>(load_le<std::uint64_t>(bytes, offset)));
  };
  OwnerRecord record;
  auto& [pid, phase, key, started, phase_started, heartbeat, build_limit, builds_ended,
         timed_out, killed] = record;
  pid = static_cast<pid_t>(load_le<std::uint32_t>(bytes, 4));
  phase = static_cast<Phase>(phase_number);
  builds_ended = load_le<std::uint32_t>(bytes, 12);
  std::array<std::byte, Digest::kSize> key_bytes{};
  std::ranges::copy(bytes.subspan(16, kKeyBytes), key_bytes.begin());
  key = Digest(key_bytes);
  started = time_at(32);
  phase_started = time_at(40);
  heartbeat = time_at(kHeartbeatOffset);
  build_limit = std::chrono::milliseconds(load_le<std::uint32_t>(bytes, 56));
  timed_out = load_le<std::uint32_t>(bytes, 60) == kTimedOut;
  killed = load_le<std::uint32_t>(bytes, 60) == kKilled;
  return record;
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
  bool is_written = false;  // by the thread of the heartbeats, now
  OwnerProcess owner{};

  class Heartbeats;
};

/// The thread that writes the heartbeats of all records that this process holds. Never
/// destroyed: the thread may outlive main. A fork waits for its mutex, so nothing is
/// written while that is locked.
class OwnedRange::Held::Heartbeats {
 public:
  static Heartbeats& instance() {
    // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): has a mutex
    static auto* const heartbeats = new Heartbeats;
    return *heartbeats;
  }

  void add(Held* held) {
    const MutexLock lock(mutex_);
    held_.push_back(held);
    start_thread();
    wake_->notify_one();
  }
  /// Waits until the thread has written what it writes for `held` now.
  void remove(Held* held) {
    const MutexLock lock(mutex_);
    held_.remove(held);
    while (held->is_written) written_->wait(mutex_);
  }

  /// Changes the record. The new one.
  template <typename Change>
  OwnerRecord change(Held& held, const Change& change) {
    const MutexLock lock(mutex_);
    change(held.record);
    return held.record;
  }
  void enter(Held& held, Phase phase) {
    const OwnerRecord entered = change(held, [&](OwnerRecord& changed) {
      changed.phase = phase;
      changed.phase_started = changed.heartbeat = boot_time_now();
    });
    held.range.write(entered.encode(), 0);
  }

 private:
  Heartbeats() {
    ::pthread_atfork([] { instance().before_fork(); }, [] { instance().in_parent(); },
                     [] { instance().in_child(); });
  }

  // Clang's analysis cannot see that the mutex stays locked between the handlers.
  void before_fork() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
    mutex_.lock();
  }
  void in_parent() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
    mutex_.unlock();
  }
  void in_child() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
    held_.clear();
    has_thread_ = false;
    wake_ = new ConditionVariable;  // the old ones' waiters do not exist here
    written_ = new ConditionVariable;
    mutex_.unlock();
  }

  void start_thread() KILN_REQUIRES(mutex_) {
    if (has_thread_)
      return;
    has_thread_ = start_quiet_thread([this] { run(); }, Thread::kDetached).has_value();
  }

  void run() {
    const MutexLock lock(mutex_);
    auto idle_since = std::chrono::steady_clock::now();
    for (;;) {
      const auto now = std::chrono::steady_clock::now();
      if (Held* const held = next_due(now)) {
        write_heartbeat(*held);
        continue;
      }
      auto next = idle_since + kIdleThreadLife;
      if (!held_.empty()) {
        idle_since = now;
        next = now + kIdleThreadLife;
      } else if (now >= next) {
        has_thread_ = false;
        return;
      }
      for (const Held* held : held_) next = std::min(next, held->due);
      wake_->wait_until(mutex_, next);
    }
  }

  [[nodiscard]] Held* next_due(std::chrono::steady_clock::time_point now)
      KILN_REQUIRES(mutex_) {
    const auto found =
        std::ranges::find_if(held_, [&](const Held* each) { return each->due <= now; });
    return found == held_.end() ? nullptr : *found;
  }

  void write_heartbeat(Held& held) KILN_REQUIRES(mutex_) {
    held.record.heartbeat = boot_time_now();
    held.due = std::chrono::steady_clock::now() + held.interval;
    held.is_written = true;
    const Bytes bytes = encode_time(held.record.heartbeat);
    mutex_.unlock();
    held.range.write(bytes, kHeartbeatOffset);
    mutex_.lock();
    held.is_written = false;
    written_->notify_all();
  }

  Mutex mutex_;
  ConditionVariable* wake_ KILN_GUARDED_BY(mutex_) = new ConditionVariable;
  ConditionVariable* written_ KILN_GUARDED_BY(mutex_) = new ConditionVariable;
  std::list<Held*> held_ KILN_GUARDED_BY(mutex_);
  bool has_thread_ KILN_GUARDED_BY(mutex_) = false;
};

void OwnedRange::Release::operator()(Held* held) const noexcept {
  const std::unique_ptr<Held> last(held);  // unlocks after the record is written
  if (!held->owner.is_this())
    return;
  auto& heartbeats = Held::Heartbeats::instance();
  heartbeats.remove(held);
  heartbeats.enter(*held, Phase::kReleased);
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
  auto& heartbeats = Held::Heartbeats::instance();
  heartbeats.enter(*held, record.phase);
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
  return Held::Heartbeats::instance().change(*held_, [](OwnerRecord&) {});
}

bool OwnedRange::is_after_killed() const {
  return held_ != nullptr && held_->is_after_killed;
}

void OwnedRange::set_phase(Phase phase) {
  if (held())
    Held::Heartbeats::instance().enter(*held_, phase);
}

void OwnedRange::end_build(BuildEnd end) {
  if (held())
    Held::Heartbeats::instance().change(*held_, [&](OwnerRecord& record) {
      record.builds_ended += end == BuildEnd::kKilled ? 0 : 1;
      record.timed_out = end == BuildEnd::kTimedOut;
      record.killed = end == BuildEnd::kKilled;
    });
  release();  // writes the record
}

}  // namespace kiln::cache
