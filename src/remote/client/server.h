// One server of a remote cache: what is asked of it, and what of its answers is
// believed. Every object that leaves this file has passed each check of `verify` and,
// where a signature is needed, that. Knows no breaker and no cache.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/key_file.h"
#include "cache/object.h"
#include "cache/object_store.h"
#include "codec/digest.h"
#include "codec/signature.h"
#include "kiln/result.h"
#include "remote/breaker.h"
#include "remote/client/body_file.h"
#include "remote/client/credentials.h"
#include "remote/client/object_body.h"
#include "remote/client/transfers.h"
#include "remote/server_address.h"
#include "remote/transfer.h"

namespace kiln::remote {

/// Where a GET of a file may go on: behind these bytes, if the server has the same
/// file.
struct Resume {
  std::uint64_t bytes = 0;
  std::string validator{};
};

/// How one request ended.
struct Answer {
  Verdict verdict = Verdict::kGood;
  std::shared_ptr<const void> room{};  // of MakeRoom, for the object
  /// Of a GET that succeeded. Without it and with kGood: the server has none.
  std::optional<cache::StoredObject> object{};
  std::vector<KeyId> signers{};               // of the object; empty: nobody was needed
  std::optional<std::uint64_t> file_bytes{};  // likewise, of get_file()
  Resume resume{};                            // of get_file() that failed
  Bytes end_bytes{};                          // of get_end()
  std::optional<std::uint64_t> whole_bytes{};  // of the file, if the server says so
  /// Of a HEAD or a PUT: it is there (now). A PUT that is denied says nothing of GETs.
  bool is_there = false;
  std::optional<Rejected> rejected{};  // then `verdict` is kFailed
  bool is_of_others = false;           // then: signed by keys that are unknown here
  std::optional<std::chrono::seconds> age{};  // of the file, if the server says so
  TransferEnd end = TransferEnd::kAnswered;
  std::uint32_t status = 0;
  std::optional<std::chrono::seconds> retry_after{};
  std::uint64_t bytes = 0;  // of the bodies
  TransferTimes times{};
  std::int64_t server_time = 0;  // its clock, in Unix seconds; 0: it did not say
  std::string why{};  // unless all went well: for people, with the server's URL
};

/// Whether a PUT may replace the object that the server has under that key. A server
/// may do so in any case, which does no harm.
enum class Existing : std::uint8_t { kStays, kIsReplaced };

/// Thread safety: every method may be called from any thread, also from a Done.
class Server {
 public:
  using Done = std::function<void(Answer)>;

  /// `transfers` must outlive it. `trusted`: whose signatures are believed; null:
  /// nobody's. Reads no file yet. What runs when it is destroyed goes on, and is
  /// reported.
  Server(ServerAddress address, ServerFiles files,
         std::shared_ptr<cache::KeyFile> trusted, cache::PayloadCheck payload_check,
         Transfers& transfers);

  [[nodiscard]] const ServerAddress& address() const;

  /// Called with the size of an object before that is read into memory, on the thread
  /// of `transfers`, which waits meanwhile.
  using MakeRoom = std::function<std::shared_ptr<const void>(std::uint64_t bytes)>;

  /// Asks for the object. `done` is called once, unless it is cancelled: on the thread
  /// of `transfers`, or by the call itself if nothing can be sent. `target` is as for
  /// ObjectStore::find(). Returns what cancel() takes.
  std::uint64_t get(const Digest& key, std::string target, Done done,
                    const TransferLimits& limits = {}, MakeRoom make_room = {});
  std::uint64_t head(const Digest& key, Done done, const TransferLimits& limits = {});
  /// Sends the object and a block of signatures by `signers`, which may be empty. They
  /// sign on the calling thread; if one cannot, nothing is sent (kAbandoned).
  std::uint64_t put(const cache::StoredObject& object, std::span<const Signer> signers,
                    Done done, const TransferLimits& limits = {},
                    Existing existing = Existing::kStays);
  void cancel(std::uint64_t id);

  /// A file of another kind, such as a pack, whose URL is of address(). Nothing in it
  /// has been checked.
  std::uint64_t get_file(const std::string& url, BodyFile into, const Resume& from,
                         Done done, const TransferLimits& limits = {});
  /// The bytes of a file from `begin` on; none, where it is shorter, or the server does
  /// not give this part.
  std::uint64_t get_end(const std::string& url, std::uint64_t begin, Done done,
                        const TransferLimits& limits);
  /// Replaces it by the first `size` bytes, if it is there.
  std::uint64_t put_file(const std::string& url, BodyFile file, std::uint64_t size,
                         Done done, const TransferLimits& limits = {});

  /// The credentials are read at the first request, and again after this.
  void read_credentials_again();
  /// Another machine that the last request sent a password or token without TLS: this
  /// server's URL or its proxy's; "": none. S3's signatures show no secret.
  [[nodiscard]] std::string open_to() const;
  /// Where they come from, and until when, for people; "": nothing to be said.
  [[nodiscard]] std::string credentials_source() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with what runs
};

}  // namespace kiln::remote
