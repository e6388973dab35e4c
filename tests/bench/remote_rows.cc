// A job beside a remote cache that is dead: it takes connections and never answers.

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "tests/bench/costs_children.h"
#include "tests/bench/rows.h"
#include "tests/bench/scratch.h"
#include "util/posix_error.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln::bench {
namespace {

constexpr std::size_t kProcesses = 8;

/// A socket that nobody accepts from: connections wait in its queue.
class DeadServer {
 public:
  static Result<std::shared_ptr<const DeadServer>> make() {
    auto server = std::make_shared<DeadServer>();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const where = reinterpret_cast<sockaddr*>(&address);
    const int fd = server->socket_.get();
    constexpr int kQueue = 1024;
    if (fd < 0 || ::bind(fd, where, size) != 0 || ::listen(fd, kQueue) != 0 ||
        ::getsockname(fd, where, &size) != 0)
      return posix_error("listen", "127.0.0.1", errno);
    server->port_ = ntohs(address.sin_port);
    return server;
  }

  [[nodiscard]] std::string url() const {
    return fmt::format("http://127.0.0.1:{}/kiln;unsigned=1", port_);
  }

 private:
  const UniqueFd socket_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t port_ = 0;
};

/// Processes of one node that want the same kernels, in the same order.
Result<Seconds> run_job(const Settings& settings, const std::string& remote) {
  const auto scratch = KILN_TRY(ScratchFolder::make(settings.folder));
  const std::vector<std::string> process = child_command(
      kJobChild,
      {scratch->path() / "cache", std::to_string(settings.job_kernels), remote});
  return run_processes(std::vector<std::vector<std::string>>(kProcesses, process));
}

Row dead_row(const Settings& settings) {
  const auto prepare = [=]() -> Result<Sides> {
    const auto server = KILN_TRY(DeadServer::make());
    return Sides{.measured = [=] { return run_job(settings, server->url()); },
                 .floor = [=] { return run_job(settings, "none"); }};
  };
  return {.name = "remote/dead",
          .what = fmt::format("{} processes build {} kernels beside a dead remote",
                              kProcesses, settings.job_kernels),
          .floor = "the same without a remote",
          .limit = {1, Seconds(1)},
          .prepare = prepare};
}

}  // namespace

std::vector<Row> remote_rows(const Settings& settings) {
  return {dead_row(settings)};
}

}  // namespace kiln::bench
