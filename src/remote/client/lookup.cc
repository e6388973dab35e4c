#include "remote/client/lookup.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace kiln::remote {

using Step = Hedge::Step;

Lookup::Lookup(std::shared_ptr<Servers> servers, const Digest& key, std::string target,
               Hedge::Build build, Duration passed)
    : servers_(std::move(servers)),
      key_(key),
      target_(std::move(target)),
      ask_at_(servers_->first_request_at()),
      has_waited_(passed >= servers_->options().wait / 2),
      hedge_(servers_->now(),
             std::max(Duration{}, Duration(servers_->options().wait) - passed), build) {
}

std::optional<Step> Lookup::wait(const std::stop_token& stop) {
  const std::stop_callback<std::function<void()>> wake(stop, [this] {
    const MutexLock lock(mutex_);
    changed_.notify_all();
  });
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (stop.stop_requested())
        return std::nullopt;
      if (const Step step = std::exchange(step_, Step::kWait); step != Step::kWait)
        return step;
      const TimePoint now = servers_->now();
      const bool asks = !has_asked_ && now >= ask_at_;
      if (!asks) {
        if (const Step step = hedge_.on_time(now); step != Step::kWait)
          return step;
        sleep_until(has_asked_ ? hedge_.deadline()
                               : std::min(hedge_.deadline(), ask_at_));
        continue;
      }
      has_asked_ = true;
    }
    ask(0);
  }
}

void Lookup::sleep_until(TimePoint time) {
  if (time == TimePoint::max())
    return changed_.wait(mutex_);
  // The clock of a test may be another one.
  changed_.wait_until(mutex_,
                      std::chrono::steady_clock::now() + (time - servers_->now()));
}

Step Lookup::on_build(Hedge::BuildEnd end) {
  const MutexLock lock(mutex_);
  step_ = Step::kWait;  // of a remote that ended while the build ran
  return hedge_.on_build(end);
}

std::optional<Found> Lookup::end() {
  std::optional<Running> running;
  bool is_overtaken = false;
  {
    const MutexLock lock(mutex_);
    has_ended_ = true;
    running = std::exchange(running_, std::nullopt);
    // A server that was asked late is not blamed for a build that was quick.
    is_overtaken = hedge_.is_overtaken() && !has_waited_;
    if (!running)
      return std::exchange(found_, std::nullopt);
  }
  if (is_overtaken)
    servers_->report_overtaken(running->request);
  else
    servers_->report_abandoned(running->request);
  if (running->id != 0)
    servers_->server(running->request.server).cancel(running->id);
  return std::nullopt;
}

/// The first server from number `from` on that may be asked.
void Lookup::ask(std::size_t from) {
  std::optional<Admitted> request;
  for (std::size_t i = from; !request && i < servers_->count(); ++i)
    request = servers_->admit(i, Use::kGet, Method::kGet, key_);
  std::uint64_t turn = 0;
  bool has_ended = false;
  {
    const MutexLock lock(mutex_);
    has_ended = has_ended_;
    if (!has_ended && !request) {
      step_ = hedge_.on_remote(false);
      changed_.notify_all();
    } else if (!has_ended) {
      turn = ++turns_;
      running_.emplace(Running{*request, turn});
    }
  }
  if (has_ended && request)
    servers_->report_abandoned(*request);
  if (has_ended || !request)
    return;
  Server& server = servers_->server(request->server);
  const std::uint64_t id = server.get(
      key_, target_,
      [self = shared_from_this(), turn](Answer answer) {
        self->on_answer(turn, std::move(answer));
      },
      servers_->options().limits);
  {
    const MutexLock lock(mutex_);
    if (running_ && running_->turn == turn)
      running_->id = id;
    if (!has_ended_)
      return;
  }
  server.cancel(id);  // end() did not know it
}

void Lookup::on_answer(std::uint64_t turn, Answer answer) {
  std::optional<Running> running;
  {
    const MutexLock lock(mutex_);
    if (!running_ || running_->turn != turn)
      return;  // cancelled
    running = std::exchange(running_, std::nullopt);
  }
  const auto then = servers_->report(running->request, key_, answer);
  if (!answer.object)
    return ask(running->request.server + (then == Servers::Then::kAskAgain ? 0 : 1));
  {
    const MutexLock lock(mutex_);
    const std::size_t server = running->request.server;
    found_ =
        Found{*std::move(answer.object),
              servers_->label(server),
              {std::move(answer.signers), servers_->server(server).address().base}};
    step_ = hedge_.on_remote(true);
    changed_.notify_all();
  }
  found_it_.request_stop();
}

}  // namespace kiln::remote
