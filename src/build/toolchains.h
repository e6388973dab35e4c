// Chooses the NVRTC for each device: one search, one choice per device, one warning.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "build/config.h"
#include "cache/layout.h"
#include "device/driver.h"
#include "kiln/result.h"
#include "toolchain/linker.h"
#include "toolchain/toolchain.h"
#include "util/fork_count.h"
#include "util/mutex.h"
#include "util/own_path.h"
#include "util/single_flight.h"

namespace kiln {

/// How much depends on what seeds have recorded: at most a warning; the choice; or that
/// there is a toolchain at all.
enum class SeedNeed : std::uint8_t { kHint, kChoice, kNothingElse };

/// Thread safety: every method may run concurrently; one thread searches, and the
/// others that need the list wait for it. No lock is held meanwhile.
class Toolchains {
 public:
  /// As device::AskNvrtc; a stop ends the question with kCancelled.
  using Ask = std::function<Result<device::NvrtcFacts>(
      const std::filesystem::path& nvrtc, const std::filesystem::path& builtins,
      const std::stop_token& stop)>;

  using Choice = std::shared_ptr<const device::ToolchainChoice>;

  static constexpr std::chrono::minutes kLookAgainAfter{5};
  /// The records of toolchains in seeds, as text.
  using SeedRecords = std::function<std::vector<std::string>(SeedNeed)>;

  /// Both are `<cache root>/toolchains`, or empty to keep nothing.
  struct Folders {
    OwnFolder hints{};
    OwnFolder links{};  // where workers read them by this path
  };

  /// `seeds` is asked for its records as far as SeedNeed says; it may be empty. `ask`
  /// is called for an NVRTC that it has no record of. A search that found an unusable
  /// one is repeated after `look_again_after`, if a device asks for which none was
  /// chosen yet.
  Toolchains(const Config& config, Folders folders, Ask ask,
             std::chrono::seconds look_again_after = kLookAgainAfter,
             SeedRecords seeds = {});

  Toolchains(const Toolchains&) = delete;
  Toolchains& operator=(const Toolchains&) = delete;
  /// Waits for the thread of start_search(), except in a forked child, which does not
  /// have that thread.
  ~Toolchains();

  /// Starts the search for NVRTCs on a thread, while the driver starts; a caller that
  /// needs the list waits for it. Call at most once, before any other thread calls.
  void start_search();

  /// Every NVRTC on this machine. `stop` ends this thread's search, or its wait for
  /// another thread's. Errors: as discover_toolchains, never cached.
  [[nodiscard]] Result<std::shared_ptr<const device::FoundToolchains>> found(
      const std::stop_token& stop = {});

  /// The NVRTC for `build_for`, chosen by device::choose_toolchain; nullopt: for no
  /// particular architecture. Logs each warning once. Errors: as both.
  [[nodiscard]] Result<Choice> choose(const std::optional<device::BuildFor>& build_for,
                                      const std::stop_token& stop = {});

  /// The one at `nvrtc`, absolute, whatever is set, without the headers of its toolkit;
  /// not searched for. Errors: kIo, kUnavailable, the error of `ask`; never cached.
  [[nodiscard]] Result<Choice> of(const std::filesystem::path& nvrtc,
                                  const std::stop_token& stop = {});

  /// The one that `named` means, as device::to_named(): wherever the search finds it,
  /// else at its path, if root or this user owns that library. Errors: kInvalidArgument
  /// for another text; kUnavailable, with the wheel that has it; those of found().
  [[nodiscard]] Result<Choice> named(const std::string& named,
                                     const std::stop_token& stop = {});

  /// The nvJitLink for what `toolchain` compiles. Errors: as find_linker, never cached.
  [[nodiscard]] Result<std::shared_ptr<const device::Linker>> linker(
      const device::Toolchain& toolchain);

  /// The CUDA driver, or nullopt where there is none. Errors: as Driver::open.
  [[nodiscard]] Result<std::optional<device::Driver>> driver();

  /// Records `toolchain`, and its linker if there was one, as the ones that this cache
  /// root was warmed with. Errors: kIo;
  /// kUnavailable if the cache keeps nothing.
  [[nodiscard]] Result<void> record(device::Toolchain toolchain);

  /// Every toolchain that is recorded, each once: here, the newest first, then in
  /// seeds.
  [[nodiscard]] std::vector<device::Toolchain> recorded() const;

  /// Of those, what may have built what `chosen` did not; none where a setting or the
  /// request has named `chosen`.
  [[nodiscard]] std::vector<Choice> others(const device::ToolchainChoice& chosen);

 private:
  /// What this cache root has recorded, the newest first.
  [[nodiscard]] std::vector<device::Toolchain> own_records() const;
  /// Those that `records` has not.
  void add_seed_records(SeedNeed need, std::vector<device::Toolchain>& records) const;

  using Found = std::shared_ptr<const device::FoundToolchains>;

  [[nodiscard]] device::ToolchainSearch search_options(
      const std::stop_token& stop) const;
  /// By name.
  template <typename Value>
  using Known = std::map<std::string, std::shared_ptr<const Value>>;
  /// Null: it is not known yet.
  template <typename Value>
  [[nodiscard]] std::shared_ptr<const Value> known(Known<Value> Toolchains::*all,
                                                   const std::string& name);
  /// `value`, or what another thread has made known meanwhile.
  template <typename Value>
  std::shared_ptr<const Value> keep(Known<Value> Toolchains::*all,
                                    const std::string& name, Value value);
  /// What was found last, or a new search.
  [[nodiscard]] Result<Found> search(const std::stop_token& stop);
  void warn_once(const std::string& warning);

  // Constant after construction.
  const Config config_;
  const Folders folders_;
  const Ask ask_;
  const std::chrono::seconds look_again_after_;
  const SeedRecords seeds_;
  const LibraryPlaces places_;

  SingleFlight<int, Found> searches_;  // of one key

  Mutex mutex_;
  Found found_ KILN_GUARDED_BY(mutex_);
  // When to repeat a search that found an unusable NVRTC.
  std::chrono::steady_clock::time_point look_again_at_ KILN_GUARDED_BY(mutex_);
  Known<device::ToolchainChoice> choices_ KILN_GUARDED_BY(mutex_);
  // By what asks for one: its path, or what named() was given.
  Known<device::ToolchainChoice> exact_ KILN_GUARDED_BY(mutex_);
  Known<device::Linker> linkers_ KILN_GUARDED_BY(mutex_);  // by the toolchain's id
  std::set<std::string> warned_ KILN_GUARDED_BY(mutex_);
  mutable std::atomic<bool> has_warned_of_record_ = false;

  Mutex driver_mutex_;
  std::optional<std::optional<device::Driver>> driver_ KILN_GUARDED_BY(driver_mutex_);

  std::unique_ptr<std::thread> search_thread_;  // of start_search(), or null
  const OwnerProcess owner_{};  // the process that `search_thread_` runs in
};

}  // namespace kiln
