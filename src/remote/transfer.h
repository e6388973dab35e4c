// What kiln-remote is asked to fetch or to send, and what it answers. The answer is
// bytes from a network: nothing in it is trusted. Bodies are no part of the messages: a
// GET and a PUT each come with the descriptor of a file that has the body, or gets it.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "codec/frame.h"
#include "kiln/result.h"

namespace kiln::remote {

enum class Method : std::uint8_t { kGet, kHead, kPut };

struct TransferLimits {
  std::chrono::milliseconds connect{500};
  std::chrono::milliseconds whole{10'000};
  std::uint64_t least_bytes_per_second = 16U << 10U;
  std::chrono::seconds slow_for{2};          // below that rate for so long: given up
  std::uint64_t most_bytes = 512ULL << 20U;  // of a body
  bool grows = false;  // `whole` has a second more for so many bytes as the rate
  friend bool operator==(const TransferLimits&, const TransferLimits&) = default;
};

/// Who asks. Never part of a URL, a log or an error.
struct Credentials {
  std::string authorization{};  // the header's value: "Bearer ..."
  std::string aws_region{};     // with `user`: AWS's signature, version 4
  std::string user{};           // "key:secret"
  std::string aws_token{};      // of a session; empty: none
  std::string ca_bundle{};      // paths
  std::string certificate{};    // with its key
  std::string query{};          // behind the URL; empty: none
  std::string proxy{};          // its URL, without a user; empty: none
  std::string proxy_user{};     // "user:password" with %XX
  friend bool operator==(const Credentials&, const Credentials&) = default;
};

/// A body that says itself how long it is: nothing is taken of one that does not begin
/// so, and no more than it says of one that does.
struct BodyHead {
  std::string magic{};            // empty: any body
  std::uint64_t size_at = 0;      // 8 bytes, little-endian
  std::uint64_t most_behind = 0;  // bytes that may follow
  friend bool operator==(const BodyHead&, const BodyHead&) = default;
};

struct TransferRequest {
  std::uint64_t id = 0;
  Method method = Method::kGet;
  std::string url{};  // http, https or file
  Credentials credentials{};
  TransferLimits limits{};
  BodyHead head{};               // of a GET
  std::uint64_t resumes_at = 0;  // a GET goes on behind these bytes of its file
  std::string validator{};       // if the server's file still has this mark; "": it
                                 // looks, and wants only what is behind these bytes
  std::uint64_t body_bytes = 0;  // of a PUT
  std::string body_sha256{};     // in hex, where the credentials sign it
  bool replaces = false;         // a PUT takes the place of what is there
  std::string form{};            // of a GET: it is a POST of these fields
  std::vector<std::string> headers{};  // more of them: then no redirect is followed
  friend bool operator==(const TransferRequest&, const TransferRequest&) = default;
};

/// Of a part of a file that the parent knows, or some version of it.
inline bool is_look(const TransferRequest& request) {
  return request.resumes_at != 0 && request.validator.empty();
}

struct TransferCancel {
  std::uint64_t id = 0;
  friend bool operator==(const TransferCancel&, const TransferCancel&) = default;
};

/// Answered as it is, so that its reader knows that the other lives.
struct Ping {
  std::uint64_t number = 0;  // always: a message has a field
  friend bool operator==(const Ping&, const Ping&) = default;
};

enum class TransferEnd : std::uint8_t {
  kAnswered,  // `status` says what
  kConnect,   // no name, no connection
  kTls,
  kTimeout,  // also too slow
  kTooLarge,
  kBroken,    // cut off, or no HTTP
  kHelper,    // kiln-remote itself has ended
  kBodyFile,  // that of the body fails here, as on a full disk
};

/// "answered", "connect", ...: of a metric's label.
[[nodiscard]] std::string_view to_string(TransferEnd end);

/// When, since its start, a transfer was so far; 0: it had no such step.
struct TransferTimes {
  std::chrono::microseconds name{0};     // the name was found
  std::chrono::microseconds connect{0};  // connected
  std::chrono::microseconds tls{0};      // and encrypted
  std::chrono::microseconds first_byte{0};
  std::chrono::microseconds whole{0};
  friend bool operator==(const TransferTimes&, const TransferTimes&) = default;
};

struct TransferReply {
  std::uint64_t id = 0;
  TransferEnd end = TransferEnd::kBroken;
  std::uint32_t status = 0;  // HTTP; of file: 200, 201 or 404
  std::optional<std::uint32_t> retry_after_s{};
  std::string error{};  // for people, if not answered
  TransferTimes times{};
  std::int64_t server_time{};  // its clock, in Unix seconds; 0: it did not say
  std::int64_t modified{};     // likewise, when the file was written
  std::optional<std::uint64_t> whole_bytes{};  // of the file, also where a part was got
  std::uint64_t body_bytes = 0;                // in the file
  std::string validator{};  // a GET may go on behind them, if it has this
  std::string refusal{};    // the first bytes of an answer that is not in the file
  friend bool operator==(const TransferReply&, const TransferReply&) = default;
};

/// The first frame of a helper.
struct HelperHello {
  std::string build_id;
  friend bool operator==(const HelperHello&, const HelperHello&) = default;
};

using ToHelper = std::variant<TransferRequest, TransferCancel, Ping>;
using FromHelper = std::variant<HelperHello, TransferReply, Ping>;

/// Whether a request comes with a descriptor.
[[nodiscard]] inline bool has_body(const TransferRequest& request) {
  return request.method != Method::kHead;
}
/// Of a body of so many bytes.
[[nodiscard]] std::chrono::milliseconds whole_limit(const TransferLimits& limits,
                                                    std::uint64_t body_bytes);

[[nodiscard]] Bytes encode(const ToHelper& message);
[[nodiscard]] Bytes encode(const FromHelper& message);
/// Errors: kCorrupt.
[[nodiscard]] Result<ToHelper> decode_to_helper(ByteView frame);
[[nodiscard]] Result<FromHelper> decode_from_helper(ByteView frame);

}  // namespace kiln::remote
