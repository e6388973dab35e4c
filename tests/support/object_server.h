// A web server with a folder in memory, as nginx with DAV is one: GET, HEAD and PUT. A
// test may look at each request first, and answer it itself.

#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fault_server.h"

namespace kiln::test {

/// Thread safety: every method may run concurrently.
class ObjectServer {
 public:
  /// Returns true if it has answered. Called on a thread of each connection.
  using Fault = std::function<bool(const Exchange&, const std::string& method,
                                   const std::string& path)>;

  [[nodiscard]] std::string url() const { return server_.url("/kiln"); }

  void set_fault(Fault fault) {
    const std::lock_guard lock(mutex_);
    fault_ = std::move(fault);
  }
  void put(const std::string& path, std::string bytes) {
    const std::lock_guard lock(mutex_);
    files_[path] = std::move(bytes);
  }
  /// By their paths, such as "/kiln/packs/job.kpack".
  [[nodiscard]] std::map<std::string, std::string> files() const {
    const std::lock_guard lock(mutex_);
    return files_;
  }
  /// Requests so far with this method.
  [[nodiscard]] std::size_t count(const std::string& method) const {
    std::size_t n = 0;
    for (const std::string& head : server_.heads())
      n += head.starts_with(method + " ") ? 1 : 0;
    return n;
  }
  [[nodiscard]] std::vector<std::string> heads() const { return server_.heads(); }

 private:
  bool serve(const Exchange& exchange) {
    const std::size_t space = exchange.head.find(' ');
    const std::string method = exchange.head.substr(0, space);
    const std::string path =
        exchange.head.substr(space + 1, exchange.head.find(' ', space + 1) - space - 1);
    Fault fault;
    {
      const std::lock_guard lock(mutex_);
      fault = fault_;
    }
    if (fault && fault(exchange, method, path))
      return false;
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(path);
    if (method == "PUT") {
      const bool stays = found != files_.end() &&
                         exchange.head.find("If-None-Match: *") != std::string::npos;
      if (!stays)
        files_[path] = exchange.body;
      exchange.answer(stays ? "412 Precondition Failed" : "201 Created", "");
    } else if (found == files_.end()) {
      exchange.answer("404 Not Found", "");
    } else if (method == "HEAD") {
      exchange.send("HTTP/1.1 200 OK\r\nContent-Length: " +
                    std::to_string(found->second.size()) + "\r\n\r\n");
    } else {
      exchange.answer("200 OK", found->second);
    }
    return true;
  }

  mutable std::mutex mutex_;
  Fault fault_;
  std::map<std::string, std::string> files_;
  const FaultServer server_{
      [this](const Exchange& exchange) { return serve(exchange); }};
};

}  // namespace kiln::test
