// What a job asks for and how it got it, told as it happens: lines in the log, lines in
// the file of KILN_EVENTS, and one summary at the end.

#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "build/cached_builds.h"
#include "build/config.h"
#include "build/event_file.h"
#include "build/nearest_entry.h"
#include "codec/digest.h"
#include "kiln/result.h"
#include "util/fork_count.h"
#include "util/mutex.h"
#include "util/striped.h"

namespace kiln {

/// A request whose end is told. Views must outlive the call.
struct Asked {
  const Digest* key = nullptr;  // null: it failed before it had a key
  std::string_view name;        // "scaled_softmax_fwd:dtype=bf16", "scale.cu: scale"
  std::string_view arch;        // "9.0a"
  std::chrono::steady_clock::time_point began{};
  std::optional<int> device{};  // the ordinal, where it is for a device
};

/// Thread safety: every method may run concurrently. Fork safety: a forked child tells
/// its requests; the summary is that of the process that opened it.
class Journal {
 public:
  /// Why a build was needed; called for a build whose reason is told or wanted.
  using WhyBuilt = std::function<std::string()>;

  /// `what` is asked for: "kernels", "files", "NVRTC's programs". Where the file of
  /// KILN_EVENTS cannot be opened, one warning says so, and the job goes on. With
  /// `explains` the reason of each build is found, told or not.
  Journal(std::string_view what, const Config& config, bool explains = false);
  /// Tells the summary. At the end of the process it is told for what is still open,
  /// unless the host's own writer has the log, which may have ended by then.
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// Returns why it was built; "" if it was not, or if nobody is told.
  std::string got(const Asked& asked, const Fetched& fetched, const WhyBuilt& why);
  void failed(const Asked& asked, const Error& error);
  /// Another compiler, below Kiln, makes it.
  void passed(std::string_view name, std::string_view reason);
  /// Kernels that were loaded already are no requests to a cache, and counted by
  /// `hits`, which lives until the next call; null: counted no more.
  void count_memory_hits(const StripedCounter* hits);

  /// Whether a hit is told, by its name.
  [[nodiscard]] bool tells_hits() const;

  /// "kernels: 40 from disk, 3 built in 5.9 s"; "" if nothing was asked for, and in a
  /// forked child.
  [[nodiscard]] std::string summary() const;

 private:
  [[nodiscard]] std::uint64_t memory_hits() const;
  static void tell_all_summaries() noexcept;

  // Constant after construction.
  const std::string what_;
  const bool explains_;
  const bool quotes_;  // sources, also in errors
  const OwnerProcess owner_;
  std::unique_ptr<EventFile> events_;  // null: none are written

  mutable Mutex memory_mutex_;
  const StripedCounter* memory_ KILN_GUARDED_BY(memory_mutex_) = nullptr;
  std::uint64_t memory_before_ KILN_GUARDED_BY(memory_mutex_) = 0;

  std::array<std::atomic<std::uint64_t>, 5> hits_{};  // by the tier
  std::atomic<std::uint64_t> built_ = 0;
  std::atomic<std::int64_t> built_ms_ = 0;
  std::atomic<std::uint64_t> waited_ = 0;
  std::atomic<std::int64_t> waited_ms_ = 0;
  std::atomic<std::uint64_t> failed_ = 0;
  std::atomic<std::uint64_t> passed_ = 0;
};

}  // namespace kiln
