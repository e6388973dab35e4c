// What builds and what waits on this machine now, for `kiln ps`: each build and each
// wait has a small file beside the locks as long as it lasts. A hint, which nothing
// else reads.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.h"
#include "codec/digest.h"
#include "util/fork_count.h"
#include "util/own_path.h"

namespace kiln {

/// A build, or a wait for the build of another process.
struct InProgress {
  Digest key;
  std::string label;   // "scaled_softmax_fwd:dtype=bf16", "scale.cu: scale"
  std::string target;  // "sm_90a"; may be empty
  std::string phase;   // "queued for a slot", "compiling", ..., or "waiting"
  pid_t pid = 0;
  std::chrono::milliseconds age{0};  // of the build or wait
  bool is_stopped = false;           // by a signal: SIGSTOP, or a debugger's
  /// Of another container, whose processes cannot be seen from here: `pid` is its own
  /// number there, and that it goes on is not known.
  bool is_elsewhere = false;
};

inline constexpr std::string_view kWaitingPhase = "waiting";

/// The folder of these files; empty where the cache has no folder for locks.
[[nodiscard]] OwnFolder in_progress_folder(cache::Cache& cache);

/// Removes what a process that has ended left. Order: by the key, the build first.
[[nodiscard]] std::vector<InProgress> list_in_progress(const OwnFolder& folder);

/// The file of one build or wait.
/// Thread safety: one thread at a time. Fork safety: a forked child's copy does
/// nothing.
class InProgressFile {
 public:
  /// Written at the first enter(). `folder` may be empty, and must outlive it.
  InProgressFile(const OwnFolder& folder, const Digest& key, std::string_view label,
                 std::string_view target);
  InProgressFile(InProgressFile&& other) noexcept;
  InProgressFile& operator=(InProgressFile&&) = delete;
  InProgressFile(const InProgressFile&) = delete;
  InProgressFile& operator=(const InProgressFile&) = delete;
  ~InProgressFile();

  /// Best effort. The same phase again costs nothing.
  void enter(std::string_view phase);

 private:
  const OwnFolder* folder_;
  OwnerProcess owner_;
  Digest key_;
  std::string label_;
  std::string target_;
  std::string name_;  // of the file; empty: it was not written
  std::string phase_;
  std::chrono::nanoseconds began_;
};

}  // namespace kiln
