// The servers that a process asks. Every request is admitted and reported here: so each
// server is left alone when its breaker says so, no key is asked for again whose object
// failed a check, and all is counted.

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
#include <unordered_set>
#include <vector>

#include "cache/counters.h"
#include "cache/key_file.h"
#include "cache/object_store.h"
#include "codec/digest.h"
#include "codec/signature.h"
#include "kiln/result.h"
#include "process/child_process.h"
#include "remote/breaker.h"
#include "remote/client/node_failures.h"
#include "remote/client/server.h"
#include "remote/client/transfers.h"
#include "remote/policy.h"
#include "remote/server_address.h"
#include "util/mutex.h"
#include "util/own_path.h"

namespace kiln::remote {

struct RemoteOptions {
  std::vector<ServerAddress> servers;  // in the order in which they are asked
  ServerFiles files;
  std::shared_ptr<cache::KeyFile> trusted{};  // null: nobody
  std::vector<Signer> signers;                // of uploads
  cache::PayloadCheck payload_check;
  std::function<Result<ChildCommand>()> helper;  // called before the first request
  std::chrono::milliseconds wait{250};           // until the build starts beside it
  bool has_rank = false;  // one of many processes that start at a time
  TransferLimits limits = {};
  OwnFolder node = {};  // see NodeFailures
  std::function<TimePoint()> now = std::chrono::steady_clock::now;
  Random random = {};  // empty: this machine's
};

/// What a request is for: its failures say nothing of the other kind, as a server may
/// be read by those who must not write.
enum class Use : std::uint8_t { kGet, kUpload };

/// A request that was admitted; to be reported once.
struct Admitted {
  std::size_t server = 0;
  Use use = Use::kGet;
  Method method = Method::kGet;
  Breaker::Leave leave;
  TimePoint began;
  bool has_failed_before = false;  // on this machine, last
};

/// The buckets of the histogram of how long requests take: upper bounds in seconds.
/// Each is a counter, "remote_seconds.<bound>".
inline constexpr std::array<std::string_view, 12> kSecondsBuckets{
    "0.005", "0.01", "0.025", "0.05", "0.1", "0.25",
    "0.5",   "1",    "2.5",   "5",    "10",  "inf"};

/// "cache.example.com:8080"; "file" for a folder: a label of metrics and events.
[[nodiscard]] std::string label_of(const ServerAddress& address);

/// Thread safety: every method may run concurrently, also in a Done of a Server. Its
/// end kills kiln-remote.
class Servers {
 public:
  /// Starts nothing. `counters` must outlive it.
  Servers(RemoteOptions options, cache::Counters& counters);

  [[nodiscard]] std::size_t count() const { return labels_.size(); }
  [[nodiscard]] bool is_written(std::size_t number) const {
    return options_.servers[number].mode == Mode::kReadWrite;
  }
  [[nodiscard]] bool is_any_written() const;
  /// Leave for a request; nullopt: the server is left alone now, or had an object of
  /// `key` that failed a check.
  [[nodiscard]] std::optional<Admitted> admit(std::size_t number, Use use,
                                              Method method, const Digest& key);
  /// True once for a key whose object failed a check of this process: what is built
  /// here takes its place. Whoever would not believe what this process signs replaces
  /// nothing; and what keys have signed that are unknown here may be good for others:
  /// it stays for kOthersStay, so that two fleets do not replace each other's for ever.
  [[nodiscard]] bool takes_place(std::size_t number, const Digest& key);
  static constexpr std::chrono::hours kOthersStay{24};
  /// Of an admitted request.
  [[nodiscard]] Server& server(std::size_t number) { return *servers_[number]; }
  [[nodiscard]] const std::string& label(std::size_t number) const {
    return labels_[number];
  }

  enum class Then : std::uint8_t { kGoOn, kAskAgain };  // it has new credentials
  Then report(const Admitted& request, const Digest& key, const Answer& answer);
  /// Of a request that was cancelled since a build was quicker: a failure.
  void report_overtaken(const Admitted& request);
  /// Of one that nobody waits for any more.
  void report_abandoned(const Admitted& request);

  /// No server is asked for this key any more.
  void pass_over(const Digest& key);

  [[nodiscard]] const RemoteOptions& options() const { return options_; }
  [[nodiscard]] TimePoint now() const { return options_.now(); }
  /// When this process may ask first: its first call decides.
  [[nodiscard]] TimePoint first_request_at();

 private:
  struct Peer {
    Breaker gets;
    Breaker uploads;
    std::unordered_set<Digest> refused{};  // keys whose object cannot be used
    std::unordered_set<Digest> bad{};      // of these, what may be replaced
    bool has_warned = false;               // of such an object

    [[nodiscard]] Breaker& of(Use use) { return use == Use::kGet ? gets : uploads; }
  };

  [[nodiscard]] bool open() KILN_REQUIRES(mutex_);
  void count(const Admitted& request, std::string_view result);
  [[nodiscard]] bool may_replace(std::size_t number, const Digest& key,
                                 const Answer& bad) const;
  void refuse_key(const Admitted& request, const Digest& key, const Answer& answer);
  Then tell_breaker(const Admitted& request, const Answer& answer);

  const RemoteOptions options_;
  const NodeFailures node_;
  cache::Counters& counters_;
  std::vector<std::string> labels_;  // constant after construction
  std::atomic_flag has_warned_{};    // of a file of this machine
  Mutex mutex_;
  enum class State : std::uint8_t { kNew, kOpen, kUnusable };
  State state_ KILN_GUARDED_BY(mutex_) = State::kNew;
  std::optional<TimePoint> first_request_at_ KILN_GUARDED_BY(mutex_);
  std::vector<Peer> peers_ KILN_GUARDED_BY(mutex_);
  // Constant once kOpen.
  std::optional<TransfersByServer> transfers_;
  std::vector<std::unique_ptr<Server>> servers_;
};

}  // namespace kiln::remote
