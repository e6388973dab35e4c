// What came of sending objects, or of fetching them, for people and as JSON.

#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "codec/signature.h"
#include "tools/in_threads.h"
#include "tools/remote/remote_run.h"
#include "tools/wanted.h"

namespace kiln::tools {

struct TransferTotals {
  struct OfServer {
    std::string url;
    std::uint64_t moved = 0;          // sent to it, or fetched from it
    std::uint64_t replaced = 0;       // of these, in the place of bad ones
    std::uint64_t already_there = 0;  // and so not sent
    std::uint64_t failed = 0;
  };
  struct Problem {
    Wanted what;         // with its error
    std::string server;  // its URL; empty: of none in particular
  };

  explicit TransferTotals(const RemoteRun& run);

  [[nodiscard]] std::uint64_t sum(std::uint64_t OfServer::*count) const;
  /// Of each object on each server, and of objects that no server was asked for. A
  /// server that is no cache has one problem for all.
  [[nodiscard]] std::uint64_t failed() const;
  void add_problem(Wanted what, Error error, const std::string& server = {});

  std::vector<OfServer> servers;
  std::uint64_t bytes = 0;
  std::vector<Problem> problems;
  LostResults lost;  // here, on this machine's disk
};

/// `[{"url","<moved>","replaced","already_there","failed"}]`; `moved` is "sent", or
/// "pulled", which has neither of the next two.
[[nodiscard]] nlohmann::ordered_json servers_json(const TransferTotals& totals,
                                                  const char* moved);
/// `[{"key","name","arch","server","error"}]`
[[nodiscard]] nlohmann::ordered_json problems_json(const TransferTotals& totals);
/// "36 sent, 2 of them in place of bad objects, 1.4 MiB, 4 already there, 1 failed".
[[nodiscard]] std::string sent_text(const TransferTotals& totals,
                                    std::string_view moved);
[[nodiscard]] nlohmann::ordered_json key_names(const std::vector<Signer>& signers);
/// A line on stderr for each, and for the rest if that was given up; a long reason is
/// printed once for those that follow, whatever their URLs and paths.
void print_problems(const TransferTotals& totals);
[[nodiscard]] int exit_code_of(const TransferTotals& totals,
                               std::uint64_t bad_lines = 0);

}  // namespace kiln::tools
