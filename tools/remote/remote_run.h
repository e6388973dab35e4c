// The servers that a verb sends to or fetches from. Unlike the data path it repeats
// what failed, as long as that has a chance.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "build/remote_setup.h"
#include "remote/client/server.h"
#include "remote/client/transfers.h"
#include "remote/pacing.h"
#include "tools/context.h"
#include "util/mutex.h"

namespace kiln::tools {

/// Of an answer that is not what was asked for.
[[nodiscard]] Error error_of(const remote::Answer& answer);

/// A verb waits for an object of any size as long as its bytes move.
inline constexpr remote::TransferLimits kObjectLimits{.whole =
                                                          std::chrono::minutes(10)};

/// A key that nobody has made.
[[nodiscard]] Digest random_key();

/// Thread safety: every method may run concurrently.
class RemoteRun {
 public:
  /// Transfers at a time.
  static constexpr std::size_t kThreads = 16;

  /// Errors: kUnavailable, where no server is configured for `use`, or there is no
  /// kiln-remote; those of remote_setup().
  [[nodiscard]] static Result<std::unique_ptr<RemoteRun>> open(const Context& context,
                                                               RemoteUse use);
  RemoteRun(const RemoteRun&) = delete;
  RemoteRun& operator=(const RemoteRun&) = delete;
  ~RemoteRun();

  /// In the order in which they are asked.
  [[nodiscard]] std::size_t server_count() const { return peers_.size(); }
  [[nodiscard]] const remote::ServerAddress& address(std::size_t server) const;
  /// The trusted keys as they are now; null without any. Errors: those of KeyFile.
  [[nodiscard]] Result<cache::KeyFile::Keys> trusted() const {
    return cache::keys_of(trusted_);
  }
  [[nodiscard]] const remote::Server& server(std::size_t server) const;
  /// By KILN_REMOTE_SIGN, where something may be sent.
  [[nodiscard]] const std::vector<Signer>& signers() const { return signers_; }
  [[nodiscard]] const std::stop_token& stop() const { return stop_; }
  [[nodiscard]] const remote::Random& random() const { return random_; }

  /// What starts one request, as the methods of remote::Server do.
  using Start = std::function<std::uint64_t(remote::Server&, remote::Server::Done)>;
  /// Waits for its answer. What failed is repeated up to three times, after a pause or
  /// when the server wants it; credentials that are denied are read again. A server on
  /// which three requests in a row have failed for good is not asked any more. After a
  /// stop of the program: kAbandoned.
  [[nodiscard]] remote::Answer ask(std::size_t server, remote::Method method,
                                   const Start& start,
                                   int most_retries = remote::kMostRetries);
  /// Succeeds unless the server has something under a key that nobody has made, as one
  /// that answers any question has. It is asked once. Errors: kUnavailable.
  [[nodiscard]] Result<void> check_is_cache(std::size_t server);
  /// Such a server is asked again.
  void forgive(std::size_t server, remote::Method method);

  /// The same, and repeats nothing.
  [[nodiscard]] remote::Answer ask_once(std::size_t server, const Start& start);
  /// False: the program is stopped.
  [[nodiscard]] bool wait_until(remote::TimePoint time);

 private:
  struct Peer;

  RemoteRun(RemoteSetup setup, ChildCommand helper, std::stop_token stop);
  [[nodiscard]] bool repeats(Peer& peer, remote::Method method, int credentials,
                             bool is_last, remote::Answer& answer);
  const std::shared_ptr<cache::KeyFile> trusted_;
  const std::vector<Signer> signers_;
  const std::stop_token stop_;
  const remote::Random random_;
  remote::TransfersByServer transfers_;
  Mutex running_mutex_;
  ConditionVariable less_run_;
  std::size_t running_ KILN_GUARDED_BY(running_mutex_) = 0;  // transfers
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace kiln::tools
