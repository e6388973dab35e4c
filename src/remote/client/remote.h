// The remote caches of a process: an object from the first server that has it, beside a
// build, and uploads of what was built. A fault of a server is a miss.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>

#include "cache/counters.h"
#include "codec/digest.h"
#include "remote/client/lookup.h"
#include "remote/client/servers.h"
#include "remote/client/uploads.h"
#include "util/fork_count.h"

namespace kiln::remote {

/// Thread safety: every method may run concurrently. Starts no process and no thread
/// before the first get() or upload().
/// Fork safety: in a forked child nothing is asked or uploaded, and destruction touches
/// nothing.
class Remote {
 public:
  /// For the uploads that wait when this, or the process, ends.
  static constexpr std::chrono::milliseconds kUploadsAtExit{5000};

  /// `counters` must outlive it.
  Remote(RemoteOptions options, cache::Counters& counters);
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;
  ~Remote();

  enum class Built : std::uint8_t {
    kAnswer,      // a result, or the source's own error
    kStopped,     // by its stop token
    kImpossible,  // this machine cannot build it: only a server may help
  };
  using Build = std::function<Built(const std::stop_token&)>;

  /// Asks the servers in turn, and runs `build` on this thread, at most once, where
  /// none has the object, or RemoteOptions::wait is over; it is stopped when the object
  /// arrives. The object, if it is the answer; nullopt: what `build` made of it is, or,
  /// where it did not run, `stop` was requested. Takes no longer than a build and the
  /// wait, of which `passed` is over.
  [[nodiscard]] std::optional<Found> get(const Digest& key, std::string_view target,
                                         const std::stop_token& stop,
                                         const Build& build, Duration passed = {});
  /// The same without a build, as long as transfers may take.
  [[nodiscard]] std::optional<Found> get(const Digest& key, std::string_view target,
                                         const std::stop_token& stop);

  /// From now on no server is asked for it: its object is sound, and cannot be used.
  void pass_over(const Digest& key);

  /// In the background; see Uploads.
  void upload(Uploads::Object object);

 private:
  struct Parts {
    std::shared_ptr<Servers> servers;
    std::shared_ptr<Uploads> uploads;
  };
  const OwnerProcess owner_;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace kiln::remote
