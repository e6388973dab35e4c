// Uploads of what was built here, in the background, one at a time: no caller waits for
// one, and a server that is slow or dead costs neither memory nor time.

#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "cache/object.h"
#include "remote/client/servers.h"
#include "remote/upload_queue.h"
#include "util/mutex.h"

namespace kiln::remote {

/// Thread safety: every method may run concurrently. Hold it by a shared_ptr: what runs
/// does, too.
class Uploads : public std::enable_shared_from_this<Uploads> {
 public:
  using Object = std::shared_ptr<const cache::StoredObject>;

  Uploads(std::shared_ptr<Servers> servers, cache::Counters& counters);

  /// To each server that is written and has no object of that key, or a bad one
  /// (Servers::takes_place()). What finds no room, or does not arrive, is counted.
  void add(Object object);
  /// Waits until all have ended, for at most `limit`, and drops the rest.
  void end(std::chrono::milliseconds limit);

 private:
  /// What is being sent.
  struct Current {
    Object object;
    std::size_t server = 0;         // to this one, and then to those behind it
    Method method = Method::kHead;  // then kPut
    Existing existing = Existing::kStays;
    std::optional<Admitted> running{};
    std::uint64_t turn = 0;  // of that request
    std::uint64_t id = 0;    // for cancel(); 0: not known yet
  };

  void go_on();
  [[nodiscard]] bool choose() KILN_REQUIRES(mutex_);
  void send(const Current& next);
  void on_answer(const Admitted& request, const Answer& answer);

  const std::shared_ptr<Servers> servers_;
  cache::Counters& counters_;
  Mutex mutex_;
  ConditionVariable idle_;
  UploadQueue<Object> queue_ KILN_GUARDED_BY(mutex_);
  std::optional<Current> current_ KILN_GUARDED_BY(mutex_);
  bool is_running_ KILN_GUARDED_BY(mutex_) = false;  // go_on() will be called
  bool has_ended_ KILN_GUARDED_BY(mutex_) = false;
  std::uint64_t turns_ KILN_GUARDED_BY(mutex_) = 0;
};

}  // namespace kiln::remote
