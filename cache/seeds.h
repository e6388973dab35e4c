// Seeds: packs and cache roots that are read and never written, asked where the cache
// itself has no object. Trusted by ownership, as a root is; one that cannot be used is
// said once and passed over, and so is each of its objects that fails a check. One on a
// mount that may be dead is asked on a thread that can be left behind.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cache/counters.h"
#include "cache/file_system.h"
#include "cache/key_file.h"
#include "cache/object_store.h"
#include "cache/pack.h"
#include "cache/signers.h"
#include "cache/trust.h"
#include "codec/digest.h"
#include "kiln/result.h"
#include "util/far_mount.h"
#include "util/mutex.h"
#include "util/own_path.h"

namespace kiln::cache {

/// Whether the mount of a path answers within a limit. Asked by a process that can be
/// given up, so that no thread of this one enters a dead mount.
using AskMount = std::function<bool(const std::filesystem::path&, const FarMount&,
                                    std::chrono::milliseconds limit)>;

/// "/mnt/a.kpack gives no answer: is nfs4 at /mnt dead?"
[[nodiscard]] std::string silence(const std::filesystem::path& path,
                                  const FarMount& mount);

/// How long a seed on a far mount is waited for, where a build can take its place, and
/// where nothing can.
inline constexpr std::chrono::milliseconds kSeedWait{250};
inline constexpr std::chrono::milliseconds kLongSeedWait{10'000};

struct SeedOptions {
  /// Asked in this order; each may have options: parse_seed().
  std::vector<std::filesystem::path> places;
  /// A pack that has signatures needs theirs, as they are at each look-up. Null: none.
  std::shared_ptr<KeyFile> keys{};
  PayloadCheck payload_check{};
  std::chrono::milliseconds wait = kSeedWait;
  AskMount ask_mount{};  // empty: no mount is asked beforehand
};

/// Seeds on local disks, or those on far mounts as well.
enum class SeedPlaces : bool { kLocal, kAll };

/// For listings.
struct SeedState {
  std::filesystem::path path;
  bool is_pack = false;
  std::uint64_t objects = 0;     // of a pack
  std::uint64_t bytes = 0;       // of a pack
  std::uint64_t bad_rows = 0;    // of a pack
  PackHeader header{};           // of a pack
  std::optional<Error> error{};  // why it is not used
};

/// Thread safety: every method may run concurrently.
/// A seed on a far mount that gives no answer in time costs the process that time once:
/// from then on it is passed over, until the call that was left behind returns.
class Seeds {
 public:
  /// Opens nothing yet: that is left to the first call. The file system must outlive
  /// the process where there are seeds on far mounts.
  Seeds(SeedOptions options, FileSystem& file_system, TrustPolicy trust,
        std::shared_ptr<Counters> counters);
  Seeds(const Seeds&) = delete;
  Seeds& operator=(const Seeds&) = delete;
  ~Seeds();

  /// The object of the first seed that has a sound one, checked as verify() does; or a
  /// miss. One that fails is counted and said once for its seed.
  /// `origin`, if given, is set by a hit.
  [[nodiscard]] std::optional<StoredObject> find(const Digest& key,
                                                 std::string_view target,
                                                 Origin* origin = nullptr);

  /// From now on this key is a miss: its object is sound, and cannot be used here.
  void pass_over(const Digest& key);

  /// The toolchains that were recorded in the seeds, as their JSON files have them.
  [[nodiscard]] std::vector<std::string> toolchains(SeedPlaces places);

  /// What the root has taken, see newer_taken(): a pack here that is older is used, and
  /// said once, unless its place says older=refuse. Call before anything is looked for.
  void set_taken(OwnFolder taken);

  /// Waits up to two seconds for each that has not been asked yet.
  [[nodiscard]] std::vector<SeedState> states();

  /// From now on kLongSeedWait is waited: without the seeds there is nothing.
  void be_patient() { wait_ = kLongSeedWait; }

 private:
  class Seed;
  struct Shared;

  template <typename T, typename Question>
  [[nodiscard]] std::optional<T> ask(const std::shared_ptr<Seed>& seed,
                                     Question question,
                                     std::chrono::milliseconds limit);

  const std::shared_ptr<Shared> shared_;  // with calls that are left behind
  const std::vector<std::shared_ptr<Seed>> seeds_;
  std::atomic<std::chrono::milliseconds> wait_;
  Mutex mutex_;
  std::set<Digest> passed_over_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
