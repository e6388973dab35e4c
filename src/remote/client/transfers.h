// Transfers by kiln-remote, from any thread. The process starts at the first transfer,
// and again after it has ended.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

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
  std::uint64_t start(TransferRequest request, BodyFile body, Done done) {
    return add(std::move(request), std::move(body), std::move(done), false);
  }
  /// The same of one that waits for credentials: nothing is sent before send(). 0: its
  /// Done was called. After its limit, or refuse(), it ends with kAnswered and status
  /// 0, and `error` says why.
  std::uint64_t hold(TransferRequest request, BodyFile body, Done done) {
    return add(std::move(request), std::move(body), std::move(done), true);
  }
  // Of one that is held; nothing, if it has ended. They call no Done.
  void send(std::uint64_t id, const Credentials& credentials);
  void refuse(std::uint64_t id, const std::string& why);
  /// Its Done is not called any more, unless it is being called.
  void cancel(std::uint64_t id);

  /// Another name for this object, that may outlive it: then it does nothing.
  [[nodiscard]] std::unique_ptr<Transfers> view() const;

 private:
  struct State;
  explicit Transfers(std::shared_ptr<State> state);
  std::uint64_t add(TransferRequest request, BodyFile body, Done done, bool is_held);

  const std::shared_ptr<State> state_;  // shared with the thread
  const bool is_view_ = false;
  const OwnerProcess owner_;
};

/// Those of a process: one for its servers, and one for each folder, as a mount that is
/// dead hangs the helper that touches it.
/// Thread safety: none.
class TransfersByServer {
 public:
  explicit TransfersByServer(ChildCommand helper) : helper_(std::move(helper)) {}
  [[nodiscard]] Transfers& of(const std::string& url) {
    const std::string folder = url.starts_with("file:") ? url : "";
    return by_folder_.try_emplace(folder, helper_).first->second;
  }

 private:
  const ChildCommand helper_;
  std::map<std::string, Transfers> by_folder_;  // "": that of all others
};

}  // namespace kiln::remote
