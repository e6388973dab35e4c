// The cache as the service uses it: objects, locks, build slots, listing, maintenance.
// A cache fault never fails a build: a failed find is a miss, a failed publish returns
// a result that says so. Both are counted.

#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "cache/counter_file.h"
#include "cache/counters.h"
#include "cache/entry.h"
#include "cache/file_system.h"
#include "cache/held_folder.h"
#include "cache/index.h"
#include "cache/key_lock.h"
#include "cache/layout.h"
#include "cache/object_store.h"
#include "cache/owned_range.h"
#include "cache/seeds.h"
#include "cache/signers.h"
#include "cache/slots.h"
#include "cache/trim.h"
#include "codec/digest.h"
#include "kiln/result.h"
#include "util/lazy_count.h"
#include "util/mutex.h"

namespace kiln::cache {

/// What is stored in the place of an object, under the same key; nullopt: the object.
/// Errors: why nothing is stored.
using StoredPart =
    std::function<Result<std::optional<StoredObject>>(const StoredObject&)>;

struct CacheOptions {
  std::filesystem::path root;  // absolute; empty: no cache on disk
  std::uint64_t limit_bytes = kDefaultLimitBytes;
  std::vector<uid_t> trusted_uids;
  std::vector<gid_t> trusted_gids;
  PayloadCheck payload_check;
  StoredPart stored_part{};                           // empty: all of an object
  LazyCount slots = 1;                                // concurrent builds, per machine
  std::chrono::milliseconds build_limit{300'000};     // in the lock record, for waiters
  std::filesystem::path runtime_dir;                  // XDG_RUNTIME_DIR, or empty
  std::filesystem::path persistent_dir = "/var/tmp";  // for locks of network roots
  /// For counts of roots that take none, by user; empty: persistent_dir.
  std::filesystem::path counters_dir{};
  /// Set: where the root is refused, or cannot be made and nobody named it, one in
  /// `runtime_dir`, else in here takes its place.
  std::filesystem::path temporary_dir;
  bool is_named = false;  // the user named the root: it is not the default
  Sync sync = Sync::kData;
  LockTimes lock_times;
  /// False to only inspect a cache: where none is, none is made, and the cache is then
  /// off without a warning.
  bool make_root = true;
  bool warns_when_off = true;                // false: the caller tells mode_reason()
  FileSystem* file_system = nullptr;         // null: the real one. Must outlive this.
  std::vector<std::filesystem::path> seeds;  // packs and roots, see seeds.h
  std::filesystem::path keys;                // trusted public keys, or empty
  std::chrono::milliseconds seed_wait = kSeedWait;
  /// Asked before a root or a seed on a far mount is touched; may be empty.
  AskMount ask_mount{};
};

/// Where an artifact comes from.
enum class Tier : std::uint8_t { kMemory, kDisk, kSeed, kRemote, kBuild };

/// "memory", "disk", "seed", "remote", "build".
[[nodiscard]] std::string_view to_string(Tier tier);

enum class Mode : std::uint8_t {
  kReadWrite,
  kReadOnly,  // hits are served, nothing is written
  kOff,       // every find misses, every publish returns the reason
};

struct VerifyResult {
  std::uint64_t checked = 0;
  std::uint64_t corrupt = 0;
  std::uint64_t untrusted = 0;
  std::uint64_t unreadable = 0;
  std::uint64_t quarantined = 0;
  // Of what has none of these, by VerifyOptions::keys.
  std::uint64_t trusted = 0;
  std::uint64_t without_signer = 0;  // built here, or taken unsigned
  std::uint64_t distrusted = 0;
  std::vector<ObjectProblem> problems;
};
enum class Quarantine : std::uint8_t { kNo, kYes };

/// Whether walk() includes objects that cannot be described, with key and size only.
enum class Damaged : std::uint8_t { kLeaveOut, kInclude };

class Background;

struct Stats {
  Totals totals;  // of objects of this format version
  std::uint64_t limit_bytes = 0;
  std::map<std::string, std::uint64_t> counters;  // of all processes, this one included
};

/// Thread safety: every method may run concurrently.
/// Fork safety: a forked child may find, publish and list; it holds none of the
/// parent's locks, and its publishes reach the index at the next listing. The
/// destructor writes pending index rows and counts, for at most about two seconds.
class Cache {
 public:
  /// Never fails: an unusable root gives Mode::kReadOnly or kOff, and one logged
  /// warning with the path and the reason (also in mode_reason()): for kOff here, for
  /// kReadOnly at the first publish, since a warmed cache may well be read-only. Reads
  /// no environment variables. A root that others could change is held open, or another
  /// takes its place, see place_reason(). Cost: a few stat and mkdir calls, and a read
  /// of /proc/self/mountinfo; the index is not opened. A root on a far mount is asked
  /// for by a process first, for two seconds.
  [[nodiscard]] static std::unique_ptr<Cache> open(CacheOptions options);

  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  ~Cache();

  [[nodiscard]] Mode mode() const { return mode_; }
  /// Empty for kReadWrite.
  [[nodiscard]] const std::string& mode_reason() const { return mode_reason_; }
  /// Empty where layout().root() is the named root, and reached by its path. Else why
  /// it is held open, or which folder takes its place: one below it, else kiln/cache in
  /// the runtime folder, else kiln-<uid> in the temporary folder.
  [[nodiscard]] const std::string& place_reason() const { return place_reason_; }
  /// True if the root is held open: there is no index, and paths in the root lead there
  /// by reach() alone, in this process alone.
  [[nodiscard]] bool is_held() const { return held_ != nullptr; }
  [[nodiscard]] std::string reach(const std::filesystem::path& path) const {
    return held_ == nullptr ? path.native() : held_->reach(path.native());
  }
  /// True if there is no cache of this format in the root, and none was to be made.
  [[nodiscard]] bool is_absent() const { return is_absent_; }
  /// True if the mount of the root gave no answer: a call on it would not return.
  [[nodiscard]] bool is_silent() const { return is_silent_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] const LockFolder& lock_folder() const { return lock_folder_; }
  /// False if there is no index: the cache is off, read-only, held open (SQLite opens
  /// paths) or on a network file system, or sqlite_is_usable() is false.
  [[nodiscard]] bool has_index() const { return index_ != nullptr; }
  [[nodiscard]] Counters& counters() { return counters_; }
  /// The file with the counts of all processes: in the root, else in a folder of the
  /// node, of this user, which this makes, as the first count does. An error: why there
  /// is none.
  [[nodiscard]] Result<std::filesystem::path> counts_at() const {
    return counter_file_ != nullptr ? counter_file_->made() : counts_at_;
  }

  // The data path.

  /// A checked object, or a miss: see ObjectStore::find. What the root lacks is looked
  /// for in the seeds, and then published in the root, if that can be written. Counts
  /// hits and misses. `tier`, if given, is set by a hit.
  [[nodiscard]] std::optional<StoredObject> find(const Digest& key,
                                                 std::string_view target = {},
                                                 Tier* tier = nullptr);
  /// As find(), but in the root alone, and counts no hit and no miss: for polling while
  /// waiting for a lock.
  [[nodiscard]] std::optional<StoredObject> look_again(const Digest& key,
                                                       std::string_view target = {});
  /// Stores the object. A background thread then updates the index, and trims a root
  /// that is over its limit. See CacheOptions::stored_part.
  PublishResult publish(const StoredObject& object);
  PublishResult publish(const NewObject& object);
  /// Of objects that came from elsewhere and were published: remembers who signed them.
  /// Nothing where the root is not written; a failure is logged once.
  void remember_signers(std::span<const Made> objects, const Origin& origin);
  /// See KeyLock::acquire. Fills in `request.build_limit`: that of CacheOptions, or
  /// `limit`, which with LockTimes::compile_grace bounds the whole wait, too. Bypassed
  /// in modes kOff and kReadOnly: no other process could use the result.
  [[nodiscard]] KeyLock::Acquired lock(
      KeyLock::LockRequest request,
      std::optional<std::chrono::milliseconds> limit = std::nullopt);
  /// See Slots::acquire; works in every mode that has a lock folder.
  [[nodiscard]] Slots::Acquired acquire_slot(Slots::SlotRequest request);

  // Listing. A cache that is off is empty.

  /// Errors: kIo, if neither the index nor the objects can be read.
  [[nodiscard]] Result<std::vector<Entry>> list(const ListQuery& query);
  /// As list(), but reads the objects instead of the index. Use it to choose what to
  /// delete: a wrong index must not delete anything. Errors: kIo.
  [[nodiscard]] Result<std::vector<Entry>> walk(const ListQuery& query,
                                                Damaged damaged) const;
  /// The one key that starts with `prefix` (6 to 64 hex digits, case ignored). Lists an
  /// object folder, not the index. Errors: kInvalidArgument (too short, not hex, or
  /// ambiguous: lists the candidates); kNotFound; kIo.
  [[nodiscard]] Result<Digest> resolve(std::string_view prefix) const;
  [[nodiscard]] Result<std::optional<Entry>> describe(const Digest& key) const;
  /// See ObjectStore::inspect. What the root lacks is looked for in the seeds.
  [[nodiscard]] Result<std::optional<StoredObject>> inspect(const Digest& key,
                                                            Tier* tier = nullptr) const;
  /// Null without any.
  [[nodiscard]] Seeds* seeds() const { return seeds_.get(); }
  /// The counts of this process are included, and those that other users have on this
  /// node, as far as this user may read them.
  [[nodiscard]] Result<Stats> stats();
  /// Of the objects that list() has. Costs more than stats(), above all without an
  /// index. Errors: kIo.
  [[nodiscard]] Result<KindTotals> totals_by_kind();

  [[nodiscard]] Signers signers() const;
  /// Fills in who signed them, which list() and walk() do only if the query asks for
  /// it.
  void add_signers(std::span<Entry> entries) const;

  // Maintenance.

  struct VerifyOptions {
    Quarantine quarantine = Quarantine::kNo;
    /// Leaves out what can be described and does not match.
    std::optional<ListQuery> only{};
    const TrustedKeys* keys = nullptr;  // set: who signed is looked at, too
    std::function<void(const ObjectProblem&)>
        on_problem{};  // called as found; may be empty
    std::stop_token stop{};
  };
  /// Makes every check on every object that is wanted. Errors: kIo.
  [[nodiscard]] Result<VerifyResult> verify(const VerifyOptions& options);
  /// One collector at a time: waits a few seconds for a trim of this cache's own
  /// background thread. A collector that shows no heartbeat from one call to a
  /// later one, for the time in LockTimes, no longer blocks. Errors: kUnavailable
  /// (read-only or off; another collector is at work), kIo.
  [[nodiscard]] Result<TrimResult> trim(const TrimOptions& options);
  /// Deletes the object and returns the bytes freed; 0 if there was none. For this
  /// process it is gone from the seeds, too. Errors: kUnavailable, kIo.
  [[nodiscard]] Result<std::uint64_t> remove(const Digest& key);
  /// Waits, at most `limit`, until the index has everything published so far and the
  /// counts are written.
  void flush(std::chrono::milliseconds limit);

 private:
  explicit Cache(CacheOptions options);
  [[nodiscard]] Mode determine_mode();
  [[nodiscard]] bool find_silence();
  [[nodiscard]] Mode settle();
  [[nodiscard]] Mode settle_elsewhere(std::string why);
  void hold_open(HeldFolder folder);
  void let_go();
  [[nodiscard]] bool settles_at(std::filesystem::path root);
  [[nodiscard]] bool settles_held(const std::filesystem::path& root);
  [[nodiscard]] Mode prepare_objects();
  void open_parts();
  [[nodiscard]] Mode turn_off(std::string reason);
  [[nodiscard]] Mode turn_off(const Error& error);
  [[nodiscard]] Mode leave_absent(const std::string& path);
  void warn_once(const Error& error);
  [[nodiscard]] Result<void> writable() const;
  [[nodiscard]] std::filesystem::path counters_dir() const;
  [[nodiscard]] CounterFile::Counts written_counts();
  [[nodiscard]] Result<Totals> totals();
  [[nodiscard]] Result<TrimResult> collect(const TrimOptions& options);
  void trim_if_full(std::uint64_t bytes, const std::stop_token& stop);
  [[nodiscard]] bool trim_is_due(std::uint64_t bytes);

  void forget_signers() const;
  [[nodiscard]] std::optional<ObjectProblem> check_signers(const Entry& entry,
                                                           const TrustedKeys& keys,
                                                           VerifyResult& result) const;
  PublishResult store(const StoredObject& object);
  [[nodiscard]] Result<OwnedRange> acquire_collector_lock();

  const CacheOptions options_;
  FileSystem* file_system_;
  HeldFileSystem* held_ = nullptr;  // null: the root is reached by its path
  Layout layout_;
  TrustPolicy trust_;
  const std::shared_ptr<Counters> shared_counters_ = std::make_shared<Counters>();
  Counters& counters_ = *shared_counters_;
  Mode mode_ = Mode::kOff;
  std::string mode_reason_;
  std::string place_reason_;
  bool is_refused_ = false;  // the last look at a root met something untrusted
  bool is_absent_ = false;
  bool is_silent_ = false;
  LockFolder lock_folder_;
  Result<std::filesystem::path> counts_at_ =
      fail(ErrorCode::kUnavailable, "there is no cache");
  std::array<std::atomic<bool>, 2> warned_{};  // [0] untrusted, [1] unreadable objects
  std::atomic<bool> warned_read_only_{false};
  std::atomic<bool> warned_signers_{false};

  // Used by the background thread only.
  std::uint64_t bytes_since_trim_ = 0;
  std::uint64_t quarantined_ = 0;  // the count at the last look

  static constexpr std::size_t kMostCollectors = 2;
  Mutex collectors_mutex_;
  // [0] watches the first collector, [1] a second one that may run when the first shows
  // no heartbeat.
  std::array<std::optional<OwnerWatch>, kMostCollectors> collectors_
      KILN_GUARDED_BY(collectors_mutex_);

  // Each uses those above it, and is destroyed before them.
  const std::unique_ptr<Seeds> seeds_;         // null: there are none
  std::unique_ptr<ObjectStore> store_;         // null: off
  std::unique_ptr<Index> index_;               // null: there is none
  std::unique_ptr<CounterFile> counter_file_;  // null: there is none
  std::unique_ptr<Slots> slots_;
  std::unique_ptr<Background> background_;  // null: off
};

}  // namespace kiln::cache
