// What a warm shares with other machines: --push sends what it has, and --pull fetches
// what others build.

#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tools/build_run.h"
#include "tools/context.h"
#include "tools/remote/fetcher.h"
#include "tools/remote/sender.h"
#include "tools/signing.h"

namespace kiln::tools {

struct WarmExchangeOptions {
  bool push = false;
  bool pull = false;
  std::string wait;  // --wait
  SigningOptions signing;
};

/// Declares --push, --pull, --wait, --sign and --signer.
void add_exchange_options(OptionSet& cli, WarmExchangeOptions& options);

/// Thread safety: send() may run concurrently.
class WarmExchange {
 public:
  /// What others build is waited for 60 s where `has_shard`, else not at all, unless
  /// --wait says how long. `service` has the settings of the service of this warm,
  /// which may upload as well. Errors: kInvalidArgument, also for a server that would
  /// be sent what nobody signs; kUnavailable, see RemoteRun::open().
  [[nodiscard]] static Result<std::unique_ptr<WarmExchange>> open(
      const Context& context, const WarmExchangeOptions& options, const Config& service,
      bool has_shard);

  /// Of all that this warm sends.
  [[nodiscard]] const std::vector<Signer>& signers() const { return signers_; }

  /// Sends what is in `cache` and has these keys, in the background, once start() was
  /// called. `cache` must outlive this.
  void start(const cache::Cache& cache);
  void send(const BuildItem& item, const BuildEntry& entry);
  /// Fetches what `others` has keys for, and returns those that came, each with the
  /// label of its server.
  [[nodiscard]] const std::map<Digest, std::string>& fetch(Context& context,
                                                           cache::Cache& cache,
                                                           const BuildReport& others);
  /// Waits until all is sent, and says what came of it. True: no server has refused
  /// anything.
  [[nodiscard]] bool finish();

  /// Adds "push" and "pull".
  void add_to(nlohmann::ordered_json& document) const;

 private:
  WarmExchange() = default;

  std::unique_ptr<RemoteRun> to_;    // null without --push
  std::unique_ptr<RemoteRun> from_;  // null without --pull
  std::vector<Signer> signers_;
  std::chrono::milliseconds wait_{0};
  std::unique_ptr<Sender> sender_;
  std::map<Digest, std::string> fetched_;
  std::optional<TransferTotals> sent_;
  std::optional<FetchReport> pulled_;
};

}  // namespace kiln::tools
