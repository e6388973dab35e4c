// Named atomic counts of cache events in this process. counter_file.h has the counts of
// all processes.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "cache/object.h"
#include "kiln/result.h"

namespace kiln::cache {

// FORMAT.md, "Counters", says what each counts.
#define KILN_COUNTERS(X)                            \
  X(kHits, "hits")                                  \
  X(kMisses, "misses")                              \
  X(kPublished, "published")                        \
  X(kAlreadyThere, "already_there")                 \
  X(kNondeterministic, "nondeterministic")          \
  X(kUntrusted, "untrusted")                        \
  X(kUnreadable, "unreadable")                      \
  X(kQuarantined, "quarantined")                    \
  X(kLockBypassed, "lock_bypassed")                 \
  X(kLockWaited, "lock_waited")                     \
  X(kEvicted, "evicted")                            \
  X(kIndexRebuilt, "index_rebuilt")                 \
  X(kIndexFailed, "index_failed")                   \
  X(kToolchainNotAsKeyed, "toolchain_not_as_keyed") \
  X(kInputsNotAsKeyed, "inputs_not_as_keyed")       \
  X(kWorkerKilled, "worker_killed")                 \
  X(kWorkerCrashed, "worker_crashed")               \
  X(kCompiled, "compiled")                          \
  X(kCompileFailed, "compile_failed")               \
  X(kBuildRefused, "build_refused")                 \
  X(kSlotHolderIgnored, "slot_holder_ignored")      \
  X(kTemporariesSwept, "temporaries_swept")         \
  X(kQuarantineSwept, "quarantine_swept")           \
  X(kSeedHits, "seed_hits")                         \
  X(kSeedRefused, "seed_refused")                   \
  X(kPrecompiledMade, "pch_made")                   \
  X(kPrecompiledUsed, "pch_used")                   \
  X(kPrecompiledRefused, "pch_refused")             \
  X(kRemoteHits, "remote_hits")                     \
  X(kUploadsDropped, "uploads_dropped")             \
  X(kMemoryHits, "memory_hits")                     \
  X(kDescriptorsLost, "descriptors_lost")

enum class Counter : std::uint8_t {
// NOLINTNEXTLINE(bugprone-macro-parentheses): an enumerator's name
#define KILN_COUNTER(counter, name) counter,
  KILN_COUNTERS(KILN_COUNTER)
#undef KILN_COUNTER
};
inline constexpr std::array kCounterNames{
#define KILN_COUNTER_NAME(counter, name) std::string_view(name),
    KILN_COUNTERS(KILN_COUNTER_NAME)
#undef KILN_COUNTER_NAME
};
inline constexpr std::size_t kCounterCount = kCounterNames.size();

/// "hits", "lock_bypassed", ... as in `stats --json`.
[[nodiscard]] constexpr std::string_view to_string(Counter counter) {
  return kCounterNames[static_cast<std::size_t>(counter)];
}

/// Thread safety: every method may run concurrently; add() never blocks.
class Counters {
 public:
  Counters() = default;
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;
  ~Counters();

  void add(Counter counter, std::uint64_t n = 1);
  /// Counts as "untrusted" if `error` is kUntrusted.
  void add_if_untrusted(const Error& error);
  /// Counts as "corrupt.<check>".
  void add_corrupt(Check check);
  /// Counts as "publish_refused.<errno name>"; `err` is a positive errno.
  void add_publish_refused(int err);
  /// Counts under a name with labels that are known at run time alone, as
  /// "remote_requests.get.hit.<server>": of letters, digits and "_.:[]-".
  void add_named(const std::string& name, std::uint64_t n = 1);

  [[nodiscard]] std::uint64_t get(Counter counter) const;
  /// All nonzero counts, by name.
  [[nodiscard]] std::map<std::string, std::uint64_t> snapshot() const;
  /// The counts added since the last call, by name; for the writer of the counter file.
  [[nodiscard]] std::map<std::string, std::uint64_t> take_unwritten();

 private:
  static constexpr std::size_t kErrnoCount = 134;  // Linux ends at 133
  static constexpr std::size_t kCellCount = kCounterCount + kCheckCount + kErrnoCount;

  struct Cell {
    std::atomic<std::uint64_t> count{0};
    std::atomic<std::uint64_t> written{0};
  };

  [[nodiscard]] static std::string name_of(std::size_t cell);
  template <typename Value>
  [[nodiscard]] std::map<std::string, std::uint64_t> collect(const Value& value) const;

  // take_unwritten() notes what it has taken.
  mutable std::array<Cell, kCellCount> cells_{};
  // Names are only added, so that no lock is needed: a process may fork at any time.
  struct Named {
    explicit Named(std::string as) : name(std::move(as)) {}
    const std::string name;
    Cell cell{};
    Named* next = nullptr;  // constant once it is in the list
  };
  [[nodiscard]] Named& named(const std::string& name);
  std::atomic<Named*> named_{nullptr};
};

}  // namespace kiln::cache
