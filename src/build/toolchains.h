// Chooses the NVRTC for each device: one search, one choice per device, one warning.

#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "build/config.h"
#include "cache/layout.h"
#include "device/driver.h"
#include "kiln/result.h"
#include "toolchain/toolchain.h"
#include "util/fork_count.h"
#include "util/mutex.h"
#include "util/own_path.h"

namespace kiln {

/// Thread safety: every method may run concurrently; the first one to need the list
/// makes the others wait until it is there.
class Toolchains {
 public:
  /// `folder` is `<cache root>/toolchains`, or empty to keep nothing. `ask` is called
  /// for an NVRTC that `folder` has no record of.
  Toolchains(const Config& config, OwnFolder folder, device::AskNvrtc ask);

  Toolchains(const Toolchains&) = delete;
  Toolchains& operator=(const Toolchains&) = delete;
  Toolchains(Toolchains&&) = delete;
  Toolchains& operator=(Toolchains&&) = delete;
  /// Waits for the thread of start_search(), except in a forked child, which does not
  /// have that thread.
  ~Toolchains();

  /// Starts the search for NVRTCs on a thread, while the driver starts; a caller that
  /// needs the list waits for it. Call at most once, before any other thread calls.
  void start_search();

  /// Every NVRTC on this machine. Errors: as discover_toolchains; never cached.
  [[nodiscard]] Result<std::shared_ptr<const device::FoundToolchains>> found();

  /// The NVRTC for `build_for`, chosen by device::choose_toolchain; nullopt: for no
  /// particular architecture. Logs each warning once.
  [[nodiscard]] Result<std::shared_ptr<const device::ToolchainChoice>> choose(
      const std::optional<device::BuildFor>& build_for);

  /// The CUDA driver, or nullopt where there is none. Errors: as Driver::open.
  [[nodiscard]] Result<std::optional<device::Driver>> driver();

  /// Records `toolchain` as the one that this cache root was warmed with. Errors: kIo;
  /// kUnavailable if the cache keeps nothing.
  [[nodiscard]] Result<void> record(const device::Toolchain& toolchain) const;

  /// The toolchain that the last warm recorded; nullopt if none can be read.
  [[nodiscard]] std::optional<device::Toolchain> recorded() const;

 private:
  [[nodiscard]] Result<std::shared_ptr<const device::FoundToolchains>> found_locked()
      KILN_REQUIRES(mutex_);
  void warn_once(const std::string& warning) KILN_REQUIRES(mutex_);

  // Constant after construction.
  const Config config_;
  const OwnFolder folder_;
  const device::AskNvrtc ask_;
  const LibraryPlaces places_;

  Mutex mutex_;
  std::shared_ptr<const device::FoundToolchains> found_ KILN_GUARDED_BY(mutex_);
  // When to repeat a search that found an unusable NVRTC.
  std::chrono::steady_clock::time_point look_again_at_ KILN_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<const device::ToolchainChoice>> choices_
      KILN_GUARDED_BY(mutex_);
  std::set<std::string> warned_ KILN_GUARDED_BY(mutex_);

  Mutex driver_mutex_;  // taken last: the driver starts while NVRTCs are looked for
  std::optional<std::optional<device::Driver>> driver_ KILN_GUARDED_BY(driver_mutex_);

  std::unique_ptr<std::thread> search_thread_;  // of start_search(), or null
  const OwnerProcess owner_{};  // the process that `search_thread_` runs in
};

}  // namespace kiln
