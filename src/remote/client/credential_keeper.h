// The credentials of one server: found on a thread of its own, which may wait for
// files, programs and services, and renewed before they end. No request waits for them
// longer than its own limit.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "remote/client/credentials.h"
#include "remote/client/transfers.h"
#include "remote/server_address.h"
#include "util/mutex.h"

namespace kiln::remote {

/// Thread safety: every method may be called from any thread. Hold it by a shared_ptr.
class CredentialKeeper : public std::enable_shared_from_this<CredentialKeeper> {
 public:
  /// Reads the variables of this process, and nothing else yet.
  CredentialKeeper(ServerAddress server, ServerFiles files, const Transfers& transfers);

  /// Of a transfer that is held: it is sent with the credentials, now or once they are
  /// there, or is refused.
  void send(std::uint64_t transfer);
  /// They were denied, and are not used any more.
  void forget();

  // Of the last ones, also after forget().

  /// False, if it is known that they are no keys of AWS.
  [[nodiscard]] bool may_sign() const;
  [[nodiscard]] bool has_session() const;
  /// Another machine that is sent a password or token without TLS: the URL of the
  /// server or its proxy; "": there is none.
  [[nodiscard]] std::string open_to() const;
  /// "profile kernels, until 2026-01-31T12:00:00Z"; "": nothing to be said.
  [[nodiscard]] std::string source() const;

 private:
  void find();
  [[nodiscard]] Result<std::string> fetch(TransferRequest request);
  void take(Result<FoundCredentials> found);
  [[nodiscard]] bool is_good(WallTime now) const KILN_REQUIRES(mutex_);

  const ServerAddress server_;
  const ServerFiles files_;
  const Variable variables_ = read_variables();
  const std::unique_ptr<Transfers> transfers_;  // a view
  mutable Mutex mutex_;
  std::optional<FoundCredentials> known_ KILN_GUARDED_BY(mutex_);
  bool is_denied_ KILN_GUARDED_BY(mutex_) = false;
  bool has_failed_ KILN_GUARDED_BY(mutex_) = false;  // to renew them
  bool is_finding_ KILN_GUARDED_BY(mutex_) = false;
  WallTime renew_at_ KILN_GUARDED_BY(mutex_) = WallTime::max();
  std::vector<std::uint64_t> waiting_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::remote
