#include "remote/client/credential_keeper.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <utility>

#include "util/log.h"
#include "util/quiet_thread.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::remote {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr minutes kRenewBefore{5};
constexpr minutes kRenewAgain{1};
constexpr std::uint32_t kSuccess = 200;

/// So long before the end, or a quarter of what is left.
WallTime before(WallTime ends, WallTime now) {
  return ends - std::min<WallTime::duration>(kRenewBefore, (ends - now) / 4);
}

}  // namespace

CredentialKeeper::CredentialKeeper(ServerAddress server, ServerFiles files,
                                   const Transfers& transfers)
    : server_(std::move(server)),
      files_(std::move(files)),
      transfers_(transfers.view()) {}

void CredentialKeeper::send(std::uint64_t transfer) {
  const auto now = std::chrono::system_clock::now();
  const MutexLock lock(mutex_);
  const bool is_there = is_good(now);
  if (is_there)
    transfers_->send(transfer, known_->who);
  else
    waiting_.push_back(transfer);
  if (is_finding_ || (is_there && now < renew_at_))
    return;
  is_finding_ = start_quiet_thread([self = shared_from_this()] { self->find(); },
                                   Thread::kDetached)
                    .has_value();
  if (!is_finding_ && !is_there)
    transfers_->refuse(transfer, "no thread can be started");
}

void CredentialKeeper::forget() {
  const MutexLock lock(mutex_);
  is_denied_ = true;
}

bool CredentialKeeper::may_sign() const {
  if (server_.base.starts_with("file:"))
    return false;
  const MutexLock lock(mutex_);
  return !known_ || is_denied_ || !known_->who.aws_region.empty();
}

bool CredentialKeeper::has_session() const {
  const MutexLock lock(mutex_);
  return known_ && !known_->who.aws_token.empty();
}

std::string CredentialKeeper::open_to() const {
  const MutexLock lock(mutex_);
  const Credentials who = known_ ? known_->who : Credentials();
  if (is_open_way(server_.base) && !(who.authorization.empty() && who.query.empty()))
    return server_.base;
  return is_open_way(who.proxy) && !who.proxy_user.empty() ? who.proxy : "";
}

std::string CredentialKeeper::source() const {
  const MutexLock lock(mutex_);
  if (!known_ || !known_->ends)
    return known_ ? known_->source : "";
  return fmt::format("{}, until {}", known_->source, format_time(*known_->ends));
}

bool CredentialKeeper::is_good(WallTime now) const {
  return known_ && !is_denied_ && (!known_->ends || *known_->ends > now);
}

void CredentialKeeper::find() {
  take(read_credentials(
      files_, server_,
      {[this](TransferRequest request) { return fetch(std::move(request)); },
       variables_}));
  static std::atomic_flag has_warned;
  if (const std::string who = open_to(); !who.empty() && !has_warned.test_and_set())
    log(LogLevel::kWarning,
        {"a password or token is sent to ", who, " without encryption: use https"});
}

void CredentialKeeper::take(Result<FoundCredentials> found) {
  const auto now = std::chrono::system_clock::now();
  const std::string why = found ? "" : found.error().message;
  const MutexLock lock(mutex_);
  is_finding_ = false;
  if (found) {
    known_ = *std::move(found);
    is_denied_ = false;
    renew_at_ = known_->ends ? before(*known_->ends, now) : WallTime::max();
  } else if (is_good(now)) {
    // The old ones hold for a while.
    renew_at_ =
        now + std::min<WallTime::duration>(kRenewAgain, (*known_->ends - now) / 4);
    if (!has_failed_)
      log(LogLevel::kWarning,
          {"the credentials of ", server_.base, " end at ", format_time(*known_->ends),
           ", and no newer ones come: ", why});
  }
  has_failed_ = !why.empty();
  for (const std::uint64_t each : std::exchange(waiting_, {})) {
    if (is_good(now))
      transfers_->send(each, known_->who);
    else
      transfers_->refuse(each, why);
  }
}

Result<std::string> CredentialKeeper::fetch(TransferRequest request) {
  const auto limit = request.limits.whole + seconds(3);
  const bool is_put = request.method == Method::kPut;
  const std::uint64_t most = request.limits.most_bytes;
  // In memory: no disk gets it.
  const BodyFile body(UniqueFd(::memfd_create("kiln credentials", MFD_CLOEXEC)));
  const auto promise = std::make_shared<std::promise<TransferReply>>();
  auto answer = promise->get_future();
  const std::uint64_t id = transfers_->start(
      std::move(request), body,
      [promise](TransferReply reply) { promise->set_value(std::move(reply)); });
  if (answer.wait_for(limit) != std::future_status::ready) {
    transfers_->cancel(id);
    return fail(ErrorCode::kUnavailable, "there is no answer");
  }
  const TransferReply reply = answer.get();
  if (reply.end != TransferEnd::kAnswered)
    return fail(ErrorCode::kUnavailable, reply.error);
  if (reply.status != kSuccess) {
    const std::string code(error_code_of(reply.refusal));
    return fail(ErrorCode::kUnavailable, "it answers {}{}", reply.status,
                code.empty() ? "" : fmt::format(" ({})", code));
  }
  if (is_put)
    return reply.refusal;
  return std::string(as_text(KILN_TRY(body.read(0, std::min(most, reply.body_bytes)))));
}

}  // namespace kiln::remote
