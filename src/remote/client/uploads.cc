#include "remote/client/uploads.h"

#include <utility>

#include "util/log.h"

namespace kiln::remote {

Uploads::Uploads(std::shared_ptr<Servers> servers, cache::Counters& counters)
    : servers_(std::move(servers)), counters_(counters) {}

void Uploads::add(Object object) {
  {
    const MutexLock lock(mutex_);
    const Digest key = object->key();
    if (has_ended_ || !queue_.add(key, std::move(object)))
      counters_.add(cache::Counter::kUploadsDropped);
    if (has_ended_ || std::exchange(is_running_, true))
      return;
  }
  go_on();
}

/// What is sent next, and to which server; false: nothing.
bool Uploads::choose() {
  for (;;) {
    if (!current_) {
      auto next = queue_.take();
      if (!next)
        return false;
      current_.emplace(Current{.object = std::move(next->second)});
    }
    while (current_->server < servers_->count() &&
           !servers_->is_written(current_->server))
      ++current_->server;
    if (current_->server < servers_->count())
      return true;
    current_.reset();
  }
}

/// Called by one thread at a time: by that of add(), and then by those of the answers.
void Uploads::go_on() {
  for (;;) {
    std::optional<Current> next;
    {
      const MutexLock lock(mutex_);
      if (has_ended_ || !choose()) {
        is_running_ = false;
        return idle_.notify_all();
      }
      const Digest key = current_->object->key();
      if (servers_->takes_place(current_->server, key)) {
        current_->method = Method::kPut;
        current_->existing = Existing::kIsReplaced;
      }
      current_->running =
          servers_->admit(current_->server, Use::kUpload, current_->method, key);
      current_->turn = ++turns_;
      current_->id = 0;
      if (!current_->running) {
        counters_.add(cache::Counter::kUploadsDropped);
        current_ = Current{.object = current_->object, .server = current_->server + 1};
        continue;
      }
      next = current_;
    }
    return send(*next);
  }
}

void Uploads::send(const Current& next) {
  const auto done = [self = shared_from_this(), request = *next.running](
                        const Answer& answer) { self->on_answer(request, answer); };
  const RemoteOptions& options = servers_->options();
  Server& server = servers_->server(next.server);
  const std::uint64_t id = next.method == Method::kHead
                               ? server.head(next.object->key(), done, options.limits)
                               : server.put(*next.object, options.signers, done,
                                            options.limits, next.existing);
  {
    const MutexLock lock(mutex_);
    if (current_ && current_->turn == next.turn)
      current_->id = id;
    if (!has_ended_)
      return;
  }
  server.cancel(id);  // end() did not know it
}

void Uploads::on_answer(const Admitted& request, const Answer& answer) {
  Digest key;
  {
    const MutexLock lock(mutex_);
    if (has_ended_ || !current_)
      return;
    key = current_->object->key();
    current_->running.reset();
  }
  if (!answer.why.empty())
    log(LogLevel::kDebug, {"upload of ", key.hex(), ": ", answer.why});
  const auto then = servers_->report(request, key, answer);
  {
    const MutexLock lock(mutex_);
    if (has_ended_ || !current_)
      return;
    const bool is_missing = request.method == Method::kHead &&
                            answer.verdict == Verdict::kGood && !answer.is_there;
    if (is_missing) {
      current_->method = Method::kPut;
    } else if (then == Servers::Then::kGoOn) {
      if (!answer.is_there)
        counters_.add(cache::Counter::kUploadsDropped);
      else if (current_->existing == Existing::kIsReplaced)
        log(LogLevel::kInfo, {"a bad object of ", servers_->label(request.server),
                              " was replaced: ", key.hex()});
      current_ = Current{.object = current_->object, .server = current_->server + 1};
    }
  }
  go_on();
}

void Uploads::end(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::optional<Current> cancelled;
  {
    const MutexLock lock(mutex_);
    while (is_running_ && idle_.wait_until(mutex_, deadline)) {
    }
    has_ended_ = true;
    cancelled = std::exchange(current_, std::nullopt);
    counters_.add(cache::Counter::kUploadsDropped, queue_.size() + (cancelled ? 1 : 0));
    queue_.drop_all();
  }
  if (!cancelled || !cancelled->running)
    return;
  servers_->report_abandoned(*cancelled->running);
  if (cancelled->id != 0)
    servers_->server(cancelled->running->server).cancel(cancelled->id);
}

}  // namespace kiln::remote
