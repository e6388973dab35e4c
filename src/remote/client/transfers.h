// Transfers by kiln-remote, from any thread. The process starts at the first transfer,
// and again after it has ended.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "process/child_process.h"
#include "remote/client/body_file.h"
#include "remote/transfer.h"
#include "util/fork_count.h"

namespace kiln::remote {

/// Thread safety: every method may be called from any thread, also from a Done.
/// In a forked child nothing is transferred, and destruction touches nothing.
class Transfers {
 public:
  /// Called once, on a thread of this object, which it must not hold up; or by start()
  /// itself if nothing can be sent. A transfer whose helper ends or hangs is given to
  /// another helper, once; then it gets kHelper.
  using Done = std::function<void(TransferReply)>;

  explicit Transfers(ChildCommand helper);
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  /// Kills the helper. What runs gets no reply any more.
  ~Transfers();

  /// `request.id` is chosen here, and returned. `body` has the bytes of a PUT; it gets
  /// those of a GET, and is nobody else's until then.
  std::uint64_t start(TransferRequest request, BodyFile body, Done done);
  /// Its Done is not called any more, unless it is being called.
  void cancel(std::uint64_t id);

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // shared with the thread
  const OwnerProcess owner_;
};

}  // namespace kiln::remote
