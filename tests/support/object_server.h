// A remote cache on the loopback: it has the objects that are put there, counts what it
// is asked, and is as slow, wrong or dead as a test says.

#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/object.h"
#include "codec/digest.h"
#include "codec/private_key.h"
#include "codec/signature.h"
#include "remote/server_address.h"
#include "tests/support/fault_server.h"

namespace kiln::test {

/// The body of a remote: the object and a block with a signature by `key`.
inline std::string signed_body(const cache::StoredObject& object,
                               const PrivateKey& key) {
  const auto digest = Blake2bHasher::of(object.file()).value();
  const Signer signer = key.signer();
  const Signature signature{signer.key, signer.sign(digest).value()};
  return std::string(as_text(object.file())) +
         std::string(as_text(encode_signatures(std::span(&signature, 1))));
}

/// Thread safety: every method may run concurrently.
class ObjectServer {
 public:
  /// Returns true if it has answered, and the connection ends; else the server answers.
  using Fault = std::function<bool(const Exchange&)>;

  [[nodiscard]] std::string url() const { return server_.url("/kiln"); }
  [[nodiscard]] remote::ServerAddress address() const { return {.base = url()}; }

  void put(const Digest& key, std::string body) {
    const std::lock_guard lock(mutex_);
    bodies_[path_of(key)] = std::move(body);
  }
  [[nodiscard]] std::string body_of(const Digest& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = bodies_.find(path_of(key));
    return found == bodies_.end() ? "" : found->second;
  }
  /// Any file, by its path, such as "/kiln/packs/job.kpack".
  void put_file(const std::string& path, std::string bytes) {
    const std::lock_guard lock(mutex_);
    bodies_[path] = std::move(bytes);
  }
  [[nodiscard]] std::map<std::string, std::string> files() const {
    const std::lock_guard lock(mutex_);
    return bodies_;
  }
  void set_fault(Fault fault) {
    const std::lock_guard lock(mutex_);
    fault_ = std::move(fault);
  }
  void set_status(const std::string& status, const std::string& headers = {}) {
    set_fault([=](const Exchange& exchange) {
      exchange.answer(status, "<html>no</html>", headers);
      return true;
    });
  }
  /// It takes requests, and never answers.
  void be_silent() {
    set_fault([](const Exchange& exchange) {
      exchange.wait_for_its_end();
      return true;
    });
  }
  /// It answers, and later than it should.
  void be_late(std::chrono::milliseconds time) {
    set_fault([time](const Exchange& exchange) {
      exchange.pause(time);
      return false;
    });
  }
  void be_honest() { set_fault({}); }

  [[nodiscard]] std::vector<std::string> heads() const { return server_.heads(); }
  /// How many requests it has had, of all or of those that begin with `method`.
  [[nodiscard]] int requests(std::string_view method = {}) const {
    const auto heads = server_.heads();
    return static_cast<int>(std::ranges::count_if(
        heads, [&](const std::string& head) { return head.starts_with(method); }));
  }

 private:
  static std::string path_of(const Digest& key) {
    remote::ServerAddress address;
    address.base = "/kiln";
    return address.object_url(key);
  }

  bool answer(Exchange& exchange) {
    Fault fault;
    std::optional<std::string> body;
    const auto& head = exchange.head;
    const std::size_t begin = head.find(' ') + 1;
    const std::string path = head.substr(begin, head.find(' ', begin) - begin);
    {
      const std::lock_guard lock(mutex_);
      fault = fault_;
      if (const auto found = bodies_.find(path); found != bodies_.end())
        body = found->second;
    }
    if (fault && fault(exchange))
      return false;
    if (head.starts_with("PUT ")) {
      const bool stays = body && head.find("If-None-Match: *") != std::string::npos;
      if (!stays)
        put_file(path, exchange.body);
      exchange.answer(stays ? "412 Precondition Failed" : "201 Created", "");
    } else if (!body) {
      exchange.answer("404 Not Found", "");
    } else if (head.starts_with("HEAD ")) {
      exchange.send("HTTP/1.1 200 OK\r\nContent-Length: " +
                    std::to_string(body->size()) + "\r\n\r\n");
    } else {
      exchange.answer("200 OK", *body);
    }
    return true;
  }

  mutable std::mutex mutex_;
  std::map<std::string, std::string> bodies_;
  Fault fault_;
  const FaultServer server_{[this](Exchange& exchange) { return answer(exchange); }};
};

}  // namespace kiln::test
