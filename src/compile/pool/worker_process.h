// A kiln-worker process: a child whose frames are the replies of protocol.h.

#pragma once

#include <utility>

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

  /// The next reply. Errors: as receive_frame(); kCorrupt also for a frame that does
  /// not decode.
  [[nodiscard]] Result<Reply> receive(const ExchangeLimits& limits) {
    return decode_reply(KILN_TRY(receive_frame(limits)));
  }

 private:
  explicit WorkerProcess(ChildProcess&& child) : ChildProcess(std::move(child)) {}
};

}  // namespace kiln::compile
