#include "tools/remote/warm_exchange.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "remote/client/servers.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

using Of = TransferTotals::OfServer;
constexpr std::chrono::seconds kWait{60};

}  // namespace

void add_exchange_options(OptionSet& cli, WarmExchangeOptions& options) {
  cli.flag(
      "--push", options.push,
      "Send the kernels, built now or found in the cache, to the servers of --remote");
  cli.flag("--pull", options.pull,
           "Fetch from these servers the kernels that the other shards build, then "
           "build missing kernels; without --shard fetch first");
  cli.option("--wait", options.wait, "DURATION",
             "How long --pull waits for the kernels of other shards: 90, which is "
             "seconds, or 5m (default: 60 with --shard, else 0)");
  add_signing_options(cli, options.signing);
}

Result<std::unique_ptr<WarmExchange>> WarmExchange::open(
    const Context& context, const WarmExchangeOptions& options, const Config& service,
    bool has_shard) {
  std::unique_ptr<WarmExchange> made(new WarmExchange);
  if (!options.wait.empty() && !options.pull)
    return refuse("warm: --wait is for --pull");
  if (!options.wait.empty())
    made->wait_ = KILN_TRY(parse_duration(options.wait));
  else if (has_shard)
    made->wait_ = kWait;
  if (options.push)
    made->to_ = KILN_TRY(RemoteRun::open(context, RemoteUse::kSend));
  if (options.pull)
    made->from_ = KILN_TRY(RemoteRun::open(context, RemoteUse::kService));
  auto uploads = KILN_TRY(remote_servers(service));
  std::erase_if(uploads, [](const remote::ServerAddress& server) {
    return server.mode != remote::Mode::kReadWrite;
  });
  if (!options.push && uploads.empty())
    return made;
  const auto keys = KILN_TRY(trusted_keys(context.config));
  made->signers_ =
      KILN_TRY(tools::signers(context.config, options.signing, keys.get()));
  if (options.push)
    KILN_TRY(check_signers(*made->to_, made->signers_));
  for (const remote::ServerAddress& server : uploads)
    KILN_TRY(check_signers(server, made->signers_));
  return made;
}

void WarmExchange::start(const cache::Cache& cache) {
  if (to_ != nullptr)
    sender_ = std::make_unique<Sender>(*to_, cache, SendOptions{signers_});
}

void WarmExchange::send(const BuildItem& item, const BuildEntry& entry) {
  // What came from there, and what is kept out of the cache, stays here.
  if (sender_ != nullptr && entry.stored && !fetched_.contains(*key_of(item)))
    sender_->add(wanted_of(item));
}

const std::map<Digest, std::string>& WarmExchange::fetch(Context& context,
                                                         cache::Cache& cache,
                                                         const BuildReport& others) {
  std::vector<Wanted> wanted;
  std::set<Digest> seen;
  for (const BuildItem& item : others.items) {
    const Digest* const key = key_of(item);
    if (key != nullptr && seen.insert(*key).second)
      wanted.push_back(wanted_of(item));
  }
  {
    Progress progress(context.err, wanted.size());
    pulled_ = fetch_objects(*from_, cache, wanted, wait_, progress);
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (pulled_->outcomes[i] == Pulled::kFetched)
      fetched_.emplace(wanted[i].key,
                       remote::label_of(from_->address(pulled_->servers[i])));
  }
  const auto& problems = pulled_->totals.problems;
  const auto say = problems.empty() ? print_note : print_error;
  say(fmt::format(
      "{} of {} pulled, {}, {} already here{}\n", fetched_.size(), wanted.size(),
      format_size(pulled_->totals.bytes), pulled_->count(Pulled::kWasHere),
      problems.empty()
          ? ""
          : fmt::format(", {} failed: {}", problems.size(),
                        printable_lines(problems.front().what.error->message))));
  return fetched_;
}

bool WarmExchange::finish() {
  if (sender_ == nullptr)
    return true;
  sent_ = sender_->finish();
  print_problems(*sent_);
  print_note(sent_text(*sent_, "pushed") + "\n");
  return sent_->problems.empty();
}

void WarmExchange::add_to(nlohmann::ordered_json& document) const {
  if (sent_)
    document["push"] = {{"sent", sent_->sum(&Of::moved)},
                        {"replaced", sent_->sum(&Of::replaced)},
                        {"already_there", sent_->sum(&Of::already_there)},
                        {"failed", sent_->problems.size()},
                        {"bytes", sent_->bytes},
                        {"servers", servers_json(*sent_, "sent")},
                        {"problems", problems_json(*sent_)}};
  if (pulled_)
    document["pull"] = {{"pulled", pulled_->count(Pulled::kFetched)},
                        {"missing", pulled_->count(Pulled::kMissing)},
                        {"failed", pulled_->totals.problems.size()},
                        {"bytes", pulled_->totals.bytes},
                        {"servers", servers_json(pulled_->totals, "pulled")},
                        {"problems", problems_json(pulled_->totals)}};
}

}  // namespace kiln::tools
