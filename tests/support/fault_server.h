// A server on the loopback that answers as a test says, byte by byte: late, broken, or
// not at all.

#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace kiln::test {

/// One request, and the connection it came on.
class Exchange {
 public:
  Exchange(int fd, const std::atomic<bool>& stop) : fd_(fd), stop_(stop) {}

  std::string head;  // request line and headers
  std::string body;

  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0)
        return;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  /// A whole answer.
  void answer(std::string_view status, std::string_view content,
              const std::string& headers = {}) const {
    send("HTTP/1.1 " + std::string(status) + "\r\nContent-Length: " +
         std::to_string(content.size()) + "\r\n" + headers + "\r\n");
    send(content);
  }
  /// Until the client has gone or the server ends; at most 20 s. True if it has gone.
  bool wait_for_its_end() const {
    for (int i = 0; i < 1000 && !stop_; ++i) {
      pollfd client{.fd = fd_, .events = POLLIN | POLLRDHUP, .revents = 0};
      if (::poll(&client, 1, 20) > 0)
        return true;
    }
    return false;
  }
  void pause(std::chrono::milliseconds time) const {
    for (auto left = time; left.count() > 0 && !stop_;
         left -= std::chrono::milliseconds(10))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  /// The client sees a reset.
  void reset() const {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  /// A half-close: the client can still send.
  void end_sending() const { ::shutdown(fd_, SHUT_WR); }
  [[nodiscard]] bool has_stopped() const { return stop_; }

 private:
  int fd_;
  const std::atomic<bool>& stop_;
};

/// Thread safety: `script` is called on a thread of each connection. The connection is
/// closed when it returns false.
class FaultServer {
 public:
  using Script = std::function<bool(Exchange&)>;

  explicit FaultServer(Script script)
      : script_(std::move(script)),
        listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    ::listen(listener_, 64);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  FaultServer(const FaultServer&) = delete;
  FaultServer& operator=(const FaultServer&) = delete;
  ~FaultServer() {
    stop_ = true;
    acceptor_.join();
    for (std::thread& each : connections_) each.join();
    ::close(listener_);
  }

  [[nodiscard]] std::string url(std::string_view path = "/object",
                                std::string_view host = "127.0.0.1") const {
    return "http://" + std::string(host) + ":" + std::to_string(port_) +
           std::string(path);
  }
  /// The heads of all requests so far.
  [[nodiscard]] std::vector<std::string> heads() const {
    const std::lock_guard lock(mutex_);
    return heads_;
  }

 private:
  void accept_all() {
    while (!stop_) {
      pollfd ready{.fd = listener_, .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 20) <= 0)
        continue;
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      const int at_once = 1;  // else what is sent in two parts takes 40 ms
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
      if (fd >= 0)
        connections_.emplace_back([this, fd] { serve(fd); });
    }
  }

  void serve(int fd) {
    std::string bytes;
    bool goes_on = true;
    while (goes_on) {
      Exchange exchange(fd, stop_);
      if (!read_request(fd, bytes, exchange))
        break;
      {
        const std::lock_guard lock(mutex_);
        heads_.push_back(exchange.head);
      }
      goes_on = script_(exchange);
    }
    ::close(fd);
  }

  bool read_request(int fd, std::string& bytes, Exchange& exchange) {
    std::size_t end = 0;
    while ((end = bytes.find("\r\n\r\n")) == std::string::npos) {
      if (!read_more(fd, bytes))
        return false;
    }
    exchange.head = bytes.substr(0, end + 2);
    bytes.erase(0, end + 4);
    const auto length = exchange.head.find("Content-Length: ");
    const std::size_t size =
        length == std::string::npos ? 0 : std::stoul(exchange.head.substr(length + 16));
    while (bytes.size() < size) {
      if (!read_more(fd, bytes))
        return false;
    }
    exchange.body = bytes.substr(0, size);
    bytes.erase(0, size);
    return true;
  }

  bool read_more(int fd, std::string& bytes) {
    while (!stop_) {
      pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 20) <= 0)
        continue;
      char some[4096];
      const ssize_t n = ::recv(fd, some, sizeof(some), 0);
      if (n <= 0)
        return false;
      bytes.append(some, static_cast<std::size_t>(n));
      return true;
    }
    return false;
  }

  const Script script_;
  const int listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread acceptor_;
  std::vector<std::thread> connections_;  // of the acceptor, until it has ended
  mutable std::mutex mutex_;
  std::vector<std::string> heads_;
};

}  // namespace kiln::test
