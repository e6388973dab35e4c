#include "tools/remote/transfer_totals.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "tools/context.h"
#include "tools/output/standard_streams.h"
#include "tools/output/terminal.h"
#include "util/units.h"

namespace kiln::tools {

using nlohmann::ordered_json;

namespace {

/// Without its URLs and paths, which have the key.
std::string reason_in(const std::string& message) {
  std::string reason;
  std::istringstream words(message);
  for (std::string word; words >> word;)
    reason += word.find('/') == std::string::npos ? word + ' ' : "";
  return reason;
}

}  // namespace

TransferTotals::TransferTotals(const RemoteRun& run) {
  for (std::size_t i = 0; i < run.server_count(); ++i)
    servers.push_back({.url = run.address(i).base});
}

std::uint64_t TransferTotals::sum(std::uint64_t OfServer::*count) const {
  std::uint64_t all = 0;
  for (const OfServer& server : servers) all += server.*count;
  return all;
}

std::uint64_t TransferTotals::failed() const {
  return sum(&OfServer::failed) + static_cast<std::uint64_t>(std::ranges::count(
                                      problems, std::string(), &Problem::server));
}

void TransferTotals::add_problem(Wanted what, Error error, const std::string& server) {
  what.error = std::move(error);
  problems.push_back({std::move(what), server});
}

ordered_json servers_json(const TransferTotals& totals, const char* moved) {
  ordered_json list = ordered_json::array();
  for (const auto& [url, count, replaced, already_there, failed] : totals.servers) {
    ordered_json one{{"url", url}, {moved, count}};
    if (moved == std::string_view("sent")) {
      one["replaced"] = replaced;
      one["already_there"] = already_there;
    }
    one["failed"] = failed;
    list.push_back(std::move(one));
  }
  return list;
}

ordered_json problems_json(const TransferTotals& totals) {
  ordered_json list = ordered_json::array();
  for (const auto& [what, server] : totals.problems) {
    const bool has_key = what.key != Digest();
    list.push_back({{"key", has_key ? ordered_json(what.key.hex()) : nullptr},
                    {"name", what.label},
                    {"arch", what.arch},
                    {"server", or_null(server)},
                    {"error", error_json(*what.error)}});
  }
  return list;
}

std::string sent_text(const TransferTotals& totals, std::string_view moved) {
  using Of = TransferTotals::OfServer;
  const std::uint64_t replaced = totals.sum(&Of::replaced);
  return fmt::format(
      "{} {}, {}{}, {} already there{}", totals.sum(&Of::moved), moved,
      replaced == 0 ? ""
                    : fmt::format("{} of them in place of bad objects, ", replaced),
      format_size(totals.bytes), totals.sum(&Of::already_there),
      totals.problems.empty() ? "" : fmt::format(", {} failed", totals.failed()));
}

ordered_json key_names(const std::vector<Signer>& signers) {
  ordered_json names = ordered_json::array();
  for (const Signer& signer : signers) names.push_back(key_name(signer.key));
  return names;
}

void print_problems(const TransferTotals& totals) {
  constexpr std::size_t kShort = 60;
  std::string last;
  for (const auto& [what, server] : totals.problems) {
    const std::string& message = what.error->message;
    const std::string reason = message.size() > kShort ? reason_in(message) : "";
    const bool is_again = !reason.empty() && reason == last;
    print_error(fmt::format(
        "{}{}{}: {}\n", printable_lines(what.label), what.arch.empty() ? "" : " ",
        what.arch, is_again ? "for the same reason" : printable_lines(message)));
    last = reason;
  }
  if (totals.lost.has_given_up())
    print_error(
        "the rest is left out, since nothing more can be written: make room, and the "
        "same command again goes on from here\n");
}

int exit_code_of(const TransferTotals& totals, std::uint64_t bad_lines) {
  if (totals.lost.has_given_up())
    return kUnavailable;
  return totals.problems.empty() && bad_lines == 0 ? kAllDone : kSomeFailed;
}

}  // namespace kiln::tools
