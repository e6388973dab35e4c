// A kiln-worker process: a child whose frames are the replies of protocol.h.

#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "compile/pool/worker_memory.h"
#include "compile/protocol/protocol.h"
#include "kiln/result.h"
#include "process/child_process.h"
#include "util/try.h"

namespace kiln::compile {

using WorkerCommand = ChildCommand;

/// Thread safety: one thread at a time.
class WorkerProcess : public ChildProcess {
 public:
  /// As ChildProcess::start().
  [[nodiscard]] static Result<WorkerProcess> start(const WorkerCommand& command) {
    return WorkerProcess(KILN_TRY(ChildProcess::start(command)));
  }

  /// From now on its memory is counted in `memory`, which must outlive it.
  void count_in(WorkerMemory& memory) { share_.emplace(memory); }
  /// Its resident memory is now this.
  void hold(std::uint64_t bytes) {
    if (share_)
      share_->hold(bytes);
  }

  /// The next reply. Errors: as receive_frame(); kCorrupt also for a frame that does
  /// not decode.
  [[nodiscard]] Result<Reply> receive(const ExchangeLimits& limits) {
    return decode_reply(KILN_TRY(receive_frame(limits)));
  }

 private:
  explicit WorkerProcess(ChildProcess&& child) : ChildProcess(std::move(child)) {}

  std::optional<WorkerMemory::Share> share_{};
};

}  // namespace kiln::compile
