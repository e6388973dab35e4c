// Immutable objects on disk, one file per key: <root>/objects/v1/<2 hex>/<62 hex>.
// Publish = private temporary + atomic name; read = verify, else a miss. Takes no lock:
// any number of processes and machines may share a root. Knows nothing of the index.

#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cache/counters.h"
#include "cache/entry.h"
#include "cache/file_system.h"
#include "cache/layout.h"
#include "cache/object.h"
#include "cache/trust.h"
#include "codec/digest.h"
#include "kiln/result.h"
#include "util/kept_fd.h"

namespace kiln::cache {

/// A check of the payload, whose format the cache does not know. Any error, whatever
/// its code, makes the object corrupt (Check::kPayload). Called on every hit and before
/// every publish.
using PayloadCheck = std::function<Result<void>(const StoredObject&)>;

enum class Access : std::uint8_t { kReadWrite, kReadOnly };
/// Whether publish calls fdatasync; kNone only where a power loss costs nothing.
enum class Sync : std::uint8_t { kData, kNone };

enum class Published : std::uint8_t {
  kStored,            // our file is in place
  kAlreadyThere,      // another one was first, with the same build
  kNondeterministic,  // another one was first, differs, and stays
  kNotStored,         // see `error`
};

struct PublishResult {
  Published outcome = Published::kNotStored;
  std::optional<Error> error;    // set if and only if kNotStored
  std::uint64_t file_bytes = 0;  // of the object as encoded
  bool temporary_lost = false;   // its temporary was gone before it was linked
};

/// One object file as a directory walk sees it.
struct ObjectFile {
  Digest key;
  struct stat info {};
};

/// Why an object file cannot be used.
struct ObjectProblem {
  enum class What : std::uint8_t { kCorrupt, kUntrusted, kUnreadable, kDistrusted };
  What what;
  Digest key;
  std::string path;
  std::optional<Check> check;  // set if kCorrupt
  std::string detail;
  struct stat seen {};  // for quarantine()
  bool quarantined = false;
};

struct ObjectStoreOptions {
  Access access = Access::kReadWrite;
  Sync sync = Sync::kData;
  PayloadCheck payload_check{};  // empty: no check
  /// Called with the key and the time (Unix ns) when an object is marked as used. May
  /// be empty.
  std::function<void(const Digest&, std::int64_t)> on_used{};
};

/// Thread safety: every method may run concurrently, from threads and from processes
/// that share the root. No lock is held, in or between calls.
/// Crash safety: after a crash an object is absent or whole.
class ObjectStore {
 public:
  /// All references must outlive the store.
  ObjectStore(const Layout& layout, FileSystem& file_system, const TrustPolicy& trust,
              Counters& counters, ObjectStoreOptions options);

  /// The object, or nullopt on a miss. Every call runs all checks of a hit; an object
  /// that fails one is quarantined, counted, and a miss. Marks the object as used, at
  /// most once an hour. An object whose target is not `target` ("sm_90a") is corrupt;
  /// an empty `target` accepts any. Errors, none of them sticky: kUntrusted; kIo
  /// (permissions, no free file descriptor).
  [[nodiscard]] Result<std::optional<StoredObject>> find(
      const Digest& key, std::string_view target = {}) const;

  /// As find(), for inspection: marks, counts and quarantines nothing. Errors:
  /// kCorrupt, naming the check that failed; kUntrusted; kIo.
  [[nodiscard]] Result<std::optional<StoredObject>> inspect(const Digest& key) const;

  /// Makes the object visible under its key, atomically. Never an error for the caller,
  /// who still has the bytes: the result says what happened. The cost does not depend
  /// on the number of objects.
  [[nodiscard]] PublishResult publish(const StoredObject& ours) const;
  [[nodiscard]] PublishResult publish(const NewObject& object) const;

  /// Deletes the object and returns the bytes freed; 0 if there was none. Concurrent
  /// readers keep their bytes. Errors: kIo; kUnavailable (a read-only cache).
  [[nodiscard]] Result<std::uint64_t> remove(const Digest& key) const;

  /// A row for `ls`, from the file's header and metadata alone; nullopt if there is no
  /// such file. A hint: the checksum is not verified. Errors: kCorrupt, kIo.
  [[nodiscard]] Result<std::optional<Entry>> describe(const Digest& key) const;

  /// Object files of one folder, unordered, without temporaries and foreign names. A
  /// missing folder is empty. Errors: kIo.
  [[nodiscard]] Result<std::vector<ObjectFile>> list(unsigned folder) const;
  /// As list(), but the keys only: no lstat of each file.
  [[nodiscard]] Result<std::vector<Digest>> list_keys(unsigned folder) const;

  /// Runs every check, SHA-256 included. nullopt if all pass or the file is gone.
  [[nodiscard]] std::optional<ObjectProblem> verify(const Digest& key) const;

  /// Moves the object to quarantine if it is still the inode in `seen`; true if it did.
  [[nodiscard]] bool quarantine(const Digest& key, const struct stat& seen,
                                Check check) const;

  [[nodiscard]] const TrustPolicy& trust() const { return trust_; }

 private:
  enum class OpenOutcome : std::uint8_t {
    kObject,
    kMissing,
    kCorrupt,     // `check` and `detail` say why
    kUntrusted,   // `detail` says why
    kUnreadable,  // `detail` says why
    kAgain,       // the file changed under us: open it again
  };

  /// The result of opening one object file.
  struct Opened {
    OpenOutcome outcome;
    std::optional<StoredObject> object{};  // set if kObject
    Check check = Check::kSize;
    std::string detail{};
    struct stat info {};  // of the file that was opened, for all but kMissing

    /// Of an object that may be sound and cannot be read.
    [[nodiscard]] std::optional<Error> refusal() const {
      if (outcome == OpenOutcome::kUntrusted)
        return Error{ErrorCode::kUntrusted, detail};
      return outcome == OpenOutcome::kUnreadable
                 ? std::optional<Error>({ErrorCode::kIo, detail})
                 : std::nullopt;
    }
  };

  enum class Touch : std::uint8_t { kNo, kYes };  // of the time of its last use
  enum class PathFrom : std::uint8_t { kObjects, kRoot };  // from objects_, or from /

  [[nodiscard]] Opened open_checked(const Digest& key, Touch touch,
                                    std::string_view target = {}) const;
  [[nodiscard]] Opened open_with_retries(const Digest& key, Touch touch) const;
  [[nodiscard]] Opened open_once(const Digest& key, Touch touch, PathFrom from) const;
  [[nodiscard]] int open_object(const std::string& path, PathFrom from) const;
  [[nodiscard]] int stat_folder(const std::string& path, PathFrom from,
                                struct stat& info) const;
  [[nodiscard]] Opened read_object(int fd, const Digest& key,
                                   const struct stat& info) const;
  void mark_used(int fd, const Digest& key, const struct stat& info) const;
  void count(const Opened& opened) const;

  /// True for a folder, not a symbolic link, that only trusted users can write.
  [[nodiscard]] bool accepts_folder(const struct stat& info) const {
    return S_ISDIR(info.st_mode) && trust_.accepts(info);
  }

  [[nodiscard]] PublishResult refuse(std::string_view call, const std::string& path,
                                     int err) const;
  [[nodiscard]] std::optional<PublishResult> refuse_folder(
      const std::string& folder) const;
  [[nodiscard]] int open_temporary(const std::string& folder, std::string& path) const;
  [[nodiscard]] PublishResult publish_checked(const StoredObject& ours) const;
  [[nodiscard]] PublishResult link_object(const StoredObject& ours,
                                          const std::string& temporary) const;
  [[nodiscard]] std::optional<PublishResult> compare_with_existing(
      const StoredObject& ours) const;
  [[nodiscard]] int link_or_rename(const std::string& temporary,
                                   const std::string& path) const;

  const Layout& layout_;
  FileSystem& file_system_;
  const TrustPolicy& trust_;
  Counters& counters_;
  const ObjectStoreOptions options_;
  // The objects folder, held open (O_PATH): the open and the stat of a hit then resolve
  // short relative paths. Null if it cannot be opened. Where this way gives no valid
  // object, the absolute path is tried.
  const KeptFd objects_;
};

}  // namespace kiln::cache
