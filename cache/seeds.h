// Seeds: packs and cache roots that are read and never written, asked where the cache
// itself has no object. Trusted by ownership, as a root is; one that cannot be used is
// said once and passed over, and so is each of its objects that fails a check.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cache/counters.h"
#include "cache/file_system.h"
#include "cache/object_store.h"
#include "cache/pack.h"
#include "cache/trust.h"
#include "codec/digest.h"
#include "codec/signature.h"
#include "kiln/result.h"
#include "util/mutex.h"

namespace kiln::cache {

/// The keys in a file of public keys, each of which is trusted. Errors: kUntrusted, if
/// another user could write it; kNotFound; kInvalidArgument; kIo.
[[nodiscard]] Result<std::vector<PublicKey>> read_trusted_keys(
    FileSystem& file_system, const TrustPolicy& trust,
    const std::filesystem::path& path);

struct SeedOptions {
  std::vector<std::filesystem::path> places;  // asked in this order
  /// Of trusted keys. A pack that has signatures then needs one of theirs. Empty: none.
  std::filesystem::path keys;
  PayloadCheck payload_check;
};

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
class Seeds {
 public:
  /// Opens nothing yet: that is left to the first call. All must outlive it.
  Seeds(SeedOptions options, FileSystem& file_system, const TrustPolicy& trust,
        Counters& counters);
  Seeds(const Seeds&) = delete;
  Seeds& operator=(const Seeds&) = delete;
  Seeds(Seeds&&) = delete;
  Seeds& operator=(Seeds&&) = delete;
  ~Seeds();

  /// The object of the first seed that has a sound one, checked as verify() does; or a
  /// miss. One that fails is counted and said once for its seed.
  [[nodiscard]] std::optional<StoredObject> find(const Digest& key,
                                                 std::string_view target);

  /// From now on this key is a miss: its object is sound, and cannot be used here.
  void pass_over(const Digest& key);

  /// The toolchains that were recorded in the seeds, as their JSON files have them.
  [[nodiscard]] std::vector<std::string> toolchains();

  [[nodiscard]] std::vector<SeedState> states();

 private:
  class Seed;

  [[nodiscard]] const std::vector<std::unique_ptr<Seed>>& opened();

  const SeedOptions options_;
  FileSystem& file_system_;
  const TrustPolicy& trust_;
  Counters& counters_;
  Mutex mutex_;
  bool is_open_ KILN_GUARDED_BY(mutex_) = false;
  std::set<Digest> passed_over_ KILN_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Seed>> seeds_;  // constant once is_open_
};

}  // namespace kiln::cache
