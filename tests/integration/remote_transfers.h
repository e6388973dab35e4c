// The fixture for tests of what kiln-remote fetches and sends.

#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "remote/client/transfers.h"
#include "tests/support/fault_server.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"

namespace kiln::remote {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Exchange;
using test::FaultServer;

/// The helper of this process; -1 if there is none.
inline pid_t helper_pid() {
  const auto children = test::children_of(::getpid());
  return children.empty() ? -1 : children.front();
}

inline ChildCommand helper() {
  return {.path = test::paths::built("bin/kiln-remote"), .name = "remote helper"};
}

struct Request : TransferRequest {
  std::string body;  // of a PUT
};

struct Reply : TransferReply {
  std::string body;  // what the file has of a GET that was answered
};

inline std::uint64_t start(Transfers& transfers, Request request,
                           const std::function<void(Reply)>& done) {
  const auto file = BodyFile::make().value();
  EXPECT_TRUE(file.append(as_bytes(request.body)));
  request.body_bytes = request.body.size();
  return transfers.start(std::move(request), file, [file, done](TransferReply reply) {
    Reply whole{std::move(reply), ""};
    if (whole.end == TransferEnd::kAnswered && whole.status < 300)
      whole.body = as_text(file.read(0, whole.body_bytes).value());
    done(std::move(whole));
  });
}

/// A server that answers each request so, and keeps the connection.
inline FaultServer::Script answering(const std::string& status, const std::string& body,
                                     const std::string& headers = "") {
  return [=](const Exchange& exchange) {
    exchange.answer(status, body, headers);
    return true;
  };
}

/// A server that takes a request and says nothing.
inline bool silence(const Exchange& exchange) {
  exchange.wait_for_its_end();
  return false;
}

class RemoteTransferTest : public testing::Test {
 protected:
  static Request get(std::string url) {
    Request request;
    request.url = std::move(url);
    request.limits.whole = seconds(5);
    request.limits.slow_for = seconds(1);
    return request;
  }

  static Request put(std::string url, std::string body) {
    Request request = get(std::move(url));
    request.method = Method::kPut;
    request.body = std::move(body);
    return request;
  }

  Reply run(Request request) {
    auto promise = std::make_shared<std::promise<Reply>>();
    auto reply = promise->get_future();
    const auto limit = request.limits.whole + seconds(10);
    start(transfers_, std::move(request),
          [promise](Reply got) { promise->set_value(std::move(got)); });
    if (reply.wait_for(limit) != std::future_status::ready) {
      ADD_FAILURE() << "no reply at all";
      return {};
    }
    return reply.get();
  }

  /// The reply of a server with this script, which must come within `limit`.
  Reply of(FaultServer::Script script, milliseconds limit = seconds(4)) {
    const FaultServer server(std::move(script));
    const auto began = Clock::now();
    Reply reply = run(get(server.url()));
    EXPECT_LT(Clock::now() - began, limit);
    return reply;
  }
  Reply of_answer(const std::string& bytes) {
    return of([bytes](const Exchange& exchange) {
      exchange.send(bytes);
      return false;
    });
  }

  Transfers transfers_{helper()};
};

}  // namespace kiln::remote
