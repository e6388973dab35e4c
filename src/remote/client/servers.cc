#include "remote/client/servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "remote/pacing.h"
#include "util/log.h"

namespace kiln::remote {
namespace {

constexpr std::array<std::string_view, 3> kMethods{"get", "head", "put"};

/// What a request came to: the label of a metric.
std::string_view result_of(Method method, const Answer& answer) {
  if (answer.rejected)
    return "rejected";
  if (answer.end != TransferEnd::kAnswered)
    return to_string(answer.end);
  if (answer.verdict == Verdict::kDenied)
    return "denied";
  if (answer.object || (answer.is_there && method == Method::kHead))
    return "hit";
  if (answer.is_there)
    return "stored";
  return answer.verdict == Verdict::kGood && method != Method::kPut ? "miss"
                                                                    : "refused";
}

std::string_view bucket_of(Duration took) {
  constexpr std::array<int, kSecondsBuckets.size() - 1> kMilliseconds{
      5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10'000};
  const auto* const found = std::ranges::find_if(
      kMilliseconds, [&](int most) { return took <= std::chrono::milliseconds(most); });
  return kSecondsBuckets[static_cast<std::size_t>(found - kMilliseconds.begin())];
}

}  // namespace

std::string label_of(const ServerAddress& address) {
  const std::string_view base = address.base;
  if (base.starts_with("file:"))
    return "file";
  const std::size_t begin = base.find("://");
  const std::string_view rest =
      begin == std::string_view::npos ? base : base.substr(begin + 3);
  std::string host(rest.substr(0, rest.find('/')));
  // As a name in the counter file may be.
  std::ranges::replace_if(
      host,
      [](unsigned char c) {
        return std::isalnum(c) == 0 &&
               std::string_view(".:[]-").find(static_cast<char>(c)) ==
                   std::string_view::npos;
      },
      '_');
  return host;
}

Servers::Servers(RemoteOptions options, cache::Counters& counters)
    : options_([&] {
        if (!options.random)
          options.random = machine_random();
        return std::move(options);
      }()),
      node_(options_.node),
      counters_(counters) {
  // Each breaker calls it under mutex_.
  const Random random = [this] { return options_.random(); };
  for (const ServerAddress& address : options_.servers) {
    labels_.push_back(label_of(address));
    peers_.push_back({.gets = Breaker(random), .uploads = Breaker(random)});
  }
}

bool Servers::is_any_written() const {
  return std::ranges::any_of(options_.servers, [](const ServerAddress& address) {
    return address.mode == Mode::kReadWrite;
  });
}

/// Before the first request: without kiln-remote no server is asked.
bool Servers::open() {
  if (state_ != State::kNew)
    return state_ == State::kOpen;
  auto command = options_.helper();
  if (!command) {
    state_ = State::kUnusable;
    log(LogLevel::kWarning, {"no remote cache is asked: ", command.error().message});
    return false;
  }
  transfers_.emplace(*std::move(command));
  for (const ServerAddress& address : options_.servers)
    servers_.push_back(
        std::make_unique<Server>(address, options_.files, options_.trusted,
                                 options_.payload_check, transfers_->of(address.base)));
  state_ = State::kOpen;
  return true;
}

TimePoint Servers::first_request_at() {
  const MutexLock lock(mutex_);
  if (!first_request_at_)
    first_request_at_ =
        now() + start_delay(options_.has_rank, options_.wait, options_.random);
  return *first_request_at_;
}

std::optional<Admitted> Servers::admit(std::size_t number, Use use, Method method,
                                       const Digest& key) {
  NodeFailures::Known known;
  if (use == Use::kGet)
    known = node_.find(options_.servers[number].base, now());
  const MutexLock lock(mutex_);
  if (known.rests || !open())
    return std::nullopt;
  Peer& peer = peers_[number];
  if (use == Use::kGet && peer.refused.contains(key))
    return std::nullopt;
  const auto leave = peer.of(use).admit(now());
  if (!leave)
    return std::nullopt;
  return Admitted{number, use, method, *leave, now(), known.failures > 0};
}

void Servers::pass_over(const Digest& key) {
  const MutexLock lock(mutex_);
  for (Peer& peer : peers_) peer.refused.insert(key);
}

bool Servers::takes_place(std::size_t number, const Digest& key) {
  const MutexLock lock(mutex_);
  return peers_[number].bad.erase(key) > 0;
}

bool Servers::may_replace(std::size_t number, const Digest& key,
                          const Answer& bad) const {
  const auto keys = cache::keys_of(options_.trusted);
  const bool believes_itself =
      options_.servers[number].takes_unsigned ||
      (keys && *keys && would_believe(options_.signers, **keys));
  const bool is_revoked = keys && *keys && (*keys)->revoked_objects.contains(key);
  return is_written(number) && believes_itself && !is_revoked &&
         (!bad.is_of_others || bad.age.value_or(std::chrono::seconds(0)) > kOthersStay);
}

Servers::Then Servers::report(const Admitted& request, const Digest& key,
                              const Answer& answer) {
  count(request, result_of(request.method, answer));
  counters_.add_named(
      request.method == Method::kPut ? "remote_bytes.sent" : "remote_bytes.received",
      answer.bytes);
  if (answer.rejected)
    refuse_key(request, key, answer);
  if (answer.end == TransferEnd::kBodyFile && !has_warned_.test_and_set())
    log(LogLevel::kWarning, {"remote caches are of no use while a file of this machine "
                             "fails (in TMPDIR, or the keys): ",
                             answer.why});
  return tell_breaker(request, answer);
}

void Servers::report_overtaken(const Admitted& request) {
  count(request, "overtaken");
  tell_breaker(request, {.verdict = Verdict::kFailed,
                         .why = fmt::format("{}: a build was quicker",
                                            options_.servers[request.server].base)});
}

void Servers::report_abandoned(const Admitted& request) {
  count(request, "abandoned");
  tell_breaker(request, {.verdict = Verdict::kAbandoned});
}

void Servers::count(const Admitted& request, std::string_view result) {
  counters_.add_named(fmt::format("remote_requests.{}.{}.{}",
                                  kMethods[static_cast<std::size_t>(request.method)],
                                  result, labels_[request.server]));
  const Duration took = now() - request.began;
  counters_.add_named(fmt::format("remote_seconds.{}", bucket_of(took)));
  counters_.add_named(
      "remote_microseconds",
      static_cast<std::uint64_t>(
          std::chrono::duration_cast<std::chrono::microseconds>(took).count()));
}

void Servers::refuse_key(const Admitted& request, const Digest& key,
                         const Answer& answer) {
  counters_.add_named(fmt::format("remote_rejected.{}", to_string(*answer.rejected)));
  const bool is_replaced = may_replace(request.server, key, answer);  // may read a file
  {
    const MutexLock lock(mutex_);
    Peer& peer = peers_[request.server];
    peer.refused.insert(key);
    if (is_replaced)
      peer.bad.insert(key);
    if (std::exchange(peer.has_warned, true))
      return;
  }
  log(LogLevel::kWarning, {"an object of a remote cache is not used (",
                           to_string(*answer.rejected), "): ", answer.why});
}

Servers::Then Servers::tell_breaker(const Admitted& request, const Answer& answer) {
  Breaker::Advice advice = Breaker::Advice::kNone;
  bool has_opened = false;
  // That an object is missing says nothing of the PUT that follows.
  const bool is_missing = request.method == Method::kHead &&
                          answer.verdict == Verdict::kGood && !answer.is_there;
  const Verdict verdict = is_missing        ? Verdict::kAbandoned
                          : answer.rejected ? Verdict::kBadBody
                                            : answer.verdict;
  {
    const MutexLock lock(mutex_);
    Breaker& breaker = peers_[request.server].of(request.use);
    const bool was_open = breaker.is_open();
    advice = breaker.report(request.leave, now(), verdict, answer.retry_after);
    has_opened = breaker.is_open() && !was_open;
  }
  // What ails kiln-remote says nothing of the server.
  const std::string& base = options_.servers[request.server].base;
  if (request.use == Use::kGet && verdict == Verdict::kFailed &&
      answer.end != TransferEnd::kHelper)
    node_.add(base, now());
  else if (request.has_failed_before && verdict == Verdict::kGood)
    node_.clear(base);
  if (has_opened)
    counters_.add_named(fmt::format("remote_breaker_open.{}", labels_[request.server]));
  if (advice == Breaker::Advice::kWarn)
    log(LogLevel::kWarning,
        {"the remote cache ", base,
         request.use == Use::kGet ? " is not asked" : " gets nothing",
         " for a while: ", answer.why});
  if (advice != Breaker::Advice::kReadCredentials)
    return Then::kGoOn;
  server(request.server).read_credentials_again();
  return Then::kAskAgain;
}

}  // namespace kiln::remote
