// A remote cache on the loopback: it has the objects that are put there, counts what it
// is asked, and is as slow, wrong or dead as a test says.

#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "cache/object.h"
#include "codec/digest.h"
#include "codec/private_key.h"
#include "codec/signature.h"
#include "remote/server_address.h"
#include "tests/support/object_server.h"

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
class RemoteServer {
 public:
  /// Returns true if it has answered; else the server does.
  using Fault = std::function<bool(const Exchange&)>;

  [[nodiscard]] remote::ServerAddress address() const {
    remote::ServerAddress address;
    address.base = server_.url();
    return address;
  }

  void put(const Digest& key, std::string body) {
    server_.put(path_of(key), std::move(body));
  }
  /// "": there is none.
  [[nodiscard]] std::string body_of(const Digest& key) const {
    const auto files = server_.files();
    const auto found = files.find(path_of(key));
    return found == files.end() ? "" : found->second;
  }

  void set_fault(Fault fault) {
    server_.set_fault(
        [fault = std::move(fault)](const Exchange& exchange, const auto&, const auto&) {
          return fault(exchange);
        });
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
  void be_honest() { server_.set_fault({}); }

  /// How many requests it has had, of all or of one method.
  [[nodiscard]] int requests(const std::string& method = {}) const {
    return static_cast<int>(method.empty() ? server_.heads().size()
                                           : server_.count(method));
  }

 private:
  static std::string path_of(const Digest& key) {
    remote::ServerAddress address;
    address.base = "/kiln";
    return address.object_url(key);
  }

  ObjectServer server_;
};

}  // namespace kiln::test
