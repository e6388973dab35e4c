// kiln-remote: fetches and sends what the process that started it asks for, and dies
// with it. It is a process of its own since a look-up of a name cannot be cancelled,
// and hosts bring their own TLS, and fork.

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <optional>
#include <span>
#include <string_view>

#include "kiln/version.h"
#include "process/child_process.h"
#include "remote/helper/curl_transfers.h"
#include "util/little_endian.h"
#include "util/text.h"

namespace kiln::remote {
namespace {

[[noreturn]] void exit_now(int status) {
  ::_exit(status);  // a thread of libcurl may wait for a name
}

/// What the parent has not read yet. This process always reads what the parent sends,
/// so that the two never wait for each other.
class Outbox {
 public:
  void add(const FromHelper& message) {
    append(bytes_, encode(message));
    flush();
  }
  void flush() {
    std::size_t sent = 0;
    while (sent < bytes_.size()) {
      const ssize_t n = ::send(kWorkerSocket, bytes_.data() + sent,
                               bytes_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0 && errno == EAGAIN)
        break;
      if (n <= 0)
        exit_now(EXIT_SUCCESS);
      sent += static_cast<std::size_t>(n);
    }
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(sent));
  }
  [[nodiscard]] bool is_empty() const { return bytes_.empty(); }

 private:
  Bytes bytes_;
};

/// Reads what is there, and handles each whole message.
class Inbox {
 public:
  void read(CurlTransfers& transfers, Outbox& outbox) {
    if (!receive_from_host(bytes_, descriptors_))
      exit_now(EXIT_SUCCESS);
    while (handle_one(transfers, outbox)) {
    }
  }

 private:
  bool handle_one(CurlTransfers& transfers, Outbox& outbox) {
    if (bytes_.size() < kFrameHeaderBytes)
      return false;
    const auto size = frame_bytes(bytes_);
    if (!size)
      give_up(size.error().message);
    if (bytes_.size() < *size)
      return false;
    auto message = decode_to_helper(ByteView(bytes_).first(*size));
    if (!message)
      give_up(message.error().message);
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(*size));
    if (auto* const request = std::get_if<TransferRequest>(&*message))
      start(transfers, std::move(*request));
    else if (const auto* const ping = std::get_if<Ping>(&*message))
      outbox.add(*ping);
    else
      transfers.cancel(std::get<TransferCancel>(*message).id);
    return true;
  }

  /// The descriptors come in the order of the requests that have one.
  void start(CurlTransfers& transfers, TransferRequest request) {
    UniqueFd body;
    if (has_body(request)) {
      if (descriptors_.empty())
        give_up("a request came without its file");
      body = std::move(descriptors_.front());
      descriptors_.pop_front();
    }
    transfers.start(std::move(request), std::move(body));
  }

  [[noreturn]] static void give_up(const std::string& why) {
    fmt::print(stderr, "{}\n", why);  // the parent quotes it
    exit_now(EXIT_FAILURE);
  }

  Bytes bytes_;
  std::deque<UniqueFd> descriptors_;
};

[[noreturn]] void serve(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent)
    exit_now(EXIT_SUCCESS);
  // No core has credentials: a limit would not hold for one that goes into a pipe.
  ::prctl(PR_SET_DUMPABLE, 0);
  // A body's file over the limit of file sizes fails that transfer alone.
  std::signal(SIGXFSZ, SIG_IGN);
  if (::chdir("/") != 0)
    exit_now(EXIT_FAILURE);
  Outbox outbox;
  auto transfers =
      CurlTransfers::make([&](TransferReply reply) { outbox.add(std::move(reply)); });
  if (!transfers) {
    fmt::print(stderr, "{}\n", transfers.error().message);
    exit_now(EXIT_FAILURE);
  }
  outbox.add(HelperHello{build_id()});
  Inbox inbox;
  while (::getppid() == parent) {
    (*transfers)->poll(kWorkerSocket, !outbox.is_empty());
    outbox.flush();
    inbox.read(**transfers, outbox);
  }
  exit_now(EXIT_SUCCESS);
}

std::optional<pid_t> parent_in(std::span<char*> arguments) {
  if (arguments.size() != 3 || std::string_view(arguments[1]) != "--parent")
    return std::nullopt;
  return number_of<pid_t>(arguments[2]);
}

}  // namespace
}  // namespace kiln::remote

int main(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<std::size_t>(argc));
  if (arguments.size() == 2 && std::string_view(arguments[1]) == "--version") {
    fmt::print("kiln-remote {}, build {}\n", kiln::version(), kiln::build_id());
    return EXIT_SUCCESS;
  }
  const auto parent = kiln::remote::parent_in(arguments);
  if (!parent) {
    fmt::print(stderr, "kiln-remote is started by Kiln itself; see 'kiln --help'\n");
    return 2;
  }
  kiln::remote::serve(*parent);
}
