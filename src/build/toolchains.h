// Which NVRTC a service uses for what: discovery once, a choice a device, one warning.

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
  /// `folder` is `<cache root>/toolchains`, empty where nothing may be kept. `ask` is
  /// called for an NVRTC that `folder` knows nothing of.
  Toolchains(const Config& config, OwnFolder folder, device::AskNvrtc ask);

  Toolchains(const Toolchains&) = delete;
  Toolchains& operator=(const Toolchains&) = delete;
  Toolchains(Toolchains&&) = delete;
  Toolchains& operator=(Toolchains&&) = delete;
  /// Waits for what look_ahead() began; not in a forked child, which has no such
  /// thread.
  ~Toolchains();

  /// Begins to look for NVRTCs in a thread of its own, beside the start of the driver;
  /// who needs the list waits for it. At most once, before any other thread calls.
  void look_ahead();

  /// Every NVRTC on this machine. Errors: as discover_toolchains, each time anew.
  [[nodiscard]] Result<std::shared_ptr<const device::FoundToolchains>> found();

  /// The one for `build_for`, as device::choose_toolchain says; nullopt asks without
  /// regard to an architecture. Its warning is logged once a process.
  [[nodiscard]] Result<std::shared_ptr<const device::ToolchainChoice>> choose(
      const std::optional<device::BuildFor>& build_for);

  /// The CUDA driver, or nullopt where there is none. Errors: as Driver::open.
  [[nodiscard]] Result<std::optional<device::Driver>> driver();

  /// Notes `toolchain` as the one that this cache root was warmed with.
  /// Errors: kIo, kUnavailable where nothing may be kept.
  [[nodiscard]] Result<void> record(const device::Toolchain& toolchain) const;

  /// What the last warm noted; nullopt where there is none that can be read.
  [[nodiscard]] std::optional<device::Toolchain> recorded() const;

 private:
  [[nodiscard]] Result<std::shared_ptr<const device::FoundToolchains>> found_locked()
      KILN_REQUIRES(mutex_);
  void warn_once(const std::string& warning) KILN_REQUIRES(mutex_);

  // Constant after construction.
  const std::filesystem::path explicit_nvrtc_;
  const std::filesystem::path explicit_driver_;
  const std::string wanted_;
  const OwnFolder folder_;
  const device::AskNvrtc ask_;
  const LibraryPlaces places_;

  Mutex mutex_;
  std::shared_ptr<const device::FoundToolchains> found_ KILN_GUARDED_BY(mutex_);
  // Of a list with one that could not be used.
  std::chrono::steady_clock::time_point look_again_at_ KILN_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<const device::ToolchainChoice>> choices_
      KILN_GUARDED_BY(mutex_);
  std::set<std::string> warned_ KILN_GUARDED_BY(mutex_);

  Mutex driver_mutex_;  // taken last: the driver starts while NVRTCs are looked for
  std::optional<std::optional<device::Driver>> driver_ KILN_GUARDED_BY(driver_mutex_);

  std::unique_ptr<std::thread> ahead_;  // of look_ahead(), or null
  const OwnerProcess owner_{};          // that it runs in
};

}  // namespace kiln
