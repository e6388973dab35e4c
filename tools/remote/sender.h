// Sends objects of the cache to remote caches, in the background.

#pragma once

#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "cache/cache.h"
#include "codec/signature.h"
#include "tools/in_threads.h"
#include "tools/output/progress.h"
#include "tools/remote/remote_run.h"
#include "tools/remote/transfer_totals.h"
#include "tools/wanted.h"
#include "util/mutex.h"

namespace kiln::tools {

struct SendOptions {
  std::vector<Signer> signers;
  /// kStays: the server is asked first, and not sent what it has, unless that is bad.
  remote::Existing existing = remote::Existing::kStays;
  Source source = Source::kOut;
};

/// Succeeds if the server takes what `signers` sign. Errors: kInvalidArgument: it takes
/// signed objects alone, and nobody signs.
[[nodiscard]] Result<void> check_signers(const remote::ServerAddress& server,
                                         const std::vector<Signer>& signers);
/// Of each server of `run`.
[[nodiscard]] Result<void> check_signers(const RemoteRun& run,
                                         const std::vector<Signer>& signers);

/// Thread safety: add() may run concurrently.
class Sender {
 public:
  /// All must outlive it. `progress` may be null.
  Sender(RemoteRun& run, const cache::Cache& cache, SendOptions options,
         Progress* progress = nullptr);
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  /// Waits for what is being sent, and sends no more.
  ~Sender();

  void add(Wanted object);
  /// Waits until all are sent; a stop of the program leaves the rest out, with an error
  /// for each, and a full disk without. Then reads one object of each server back.
  /// Nothing may be added afterwards.
  [[nodiscard]] TransferTotals finish();

 private:
  void work();
  [[nodiscard]] bool has_given_up();
  void send(const Wanted& object);
  [[nodiscard]] Result<void> read_into(std::optional<cache::StoredObject>& object,
                                       const Digest& key) const;
  /// `object` may be gone afterwards, as after look(). Errors: why it was not sent.
  [[nodiscard]] Result<void> send_to(std::size_t server, const Digest& key,
                                     std::optional<cache::StoredObject>& object);
  enum class There : std::uint8_t { kNothing, kGood, kBad };
  /// What the server has under its key. The end of that and its size are compared;
  /// where they differ, the whole of it has to pass each check, and takes the room of
  /// `object`, which is then gone.
  [[nodiscard]] Result<There> look(std::size_t server,
                                   std::optional<cache::StoredObject>& object);
  [[nodiscard]] remote::Answer get(std::size_t server, const Digest& key);
  [[nodiscard]] Result<There> judge(std::size_t server,
                                    const remote::Answer& whole) const;
  [[nodiscard]] bool is_same(std::size_t server, const cache::StoredObject& object,
                             const remote::Answer& there) const;
  /// Whoever would not believe what it sends cannot tell a bad signature.
  [[nodiscard]] bool judges_signatures(std::size_t server) const;
  [[nodiscard]] Result<void> read_back(std::size_t server, const Digest& key);
  void close();

  RemoteRun& run_;
  const cache::Cache& cache_;
  const SendOptions options_;
  Progress* const progress_;
  const HeldBytes held_{kMostHeld};  // in objects that are sent
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Wanted> queue_ KILN_GUARDED_BY(mutex_);
  bool is_closed_ KILN_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ KILN_GUARDED_BY(mutex_);
  TransferTotals totals_ KILN_GUARDED_BY(mutex_);
  // By server, the first.
  std::map<std::size_t, Digest> sent_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::tools
