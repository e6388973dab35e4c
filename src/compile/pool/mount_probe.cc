#include "compile/pool/mount_probe.h"

#include <poll.h>

#include <cerrno>
#include <string>

#include "compile/protocol/protocol.h"
#include "process/child_process.h"
#include "util/log.h"

namespace kiln::compile {
namespace {

using Clock = std::chrono::steady_clock;

/// The child's end of the socket closes when it ends, so it needs to say nothing.
bool ends_before(int socket, Clock::time_point deadline) {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd end{.fd = socket, .events = POLLIN, .revents = 0};
    const int ready =
        ::poll(&end, 1, left.count() > 0 ? static_cast<int>(left.count()) : 0);
    if (ready >= 0 || errno != EINTR)
      return ready > 0;
  }
}

}  // namespace

bool mount_answers(const std::filesystem::path& worker,
                   const std::filesystem::path& mount,
                   const std::filesystem::path& place,
                   std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  // Without LD_LIBRARY_PATH: the loader would hang in a dead folder there.
  auto child = ChildProcess::start(
      {.path = worker,
       .name = "probe of a mount",
       .arguments = {std::string(kProbeArgument), mount.native(), place.native()}});
  if (!child) {
    log(LogLevel::kDebug, {child.error().message});
    return true;
  }
  const bool answers = ends_before(child->socket(), deadline);
  child->leave();
  return answers;
}

}  // namespace kiln::compile
