// kiln verify: check every object, SHA-256 included.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tools/entry_filter.h"
#include "tools/open_cache.h"
#include "tools/signing.h"
#include "tools/verbs.h"
#include "util/try.h"
#include "util/words.h"

namespace kiln::tools {
namespace {

using nlohmann::ordered_json;
using What = cache::ObjectProblem::What;

// The exit status is a bitwise OR of these.
constexpr int kBadBit = 1;  // corrupt, or distrusted
constexpr int kUntrustedBit = 8;
constexpr int kUnreadableBit = 16;

struct VerifyOptions {
  bool quarantine = false;
  EntryFilterOptions filter;
  std::string keys;
};

void print_problem(const Context& context, const cache::ObjectProblem& problem) {
  print_error(fmt::format(
      "{} {}: {}{}{}\n",
      context.err.styled(
          word_of(problem.what, {"corrupt", "untrusted", "unreadable", "distrusted"}),
          Style::kRed),
      problem.path,
      problem.check ? fmt::format("{} check: ", to_string(*problem.check)) : "",
      problem.detail, problem.quarantined ? " (moved to quarantine)" : ""));
}

ordered_json result_json(const cache::VerifyResult& result, bool has_keys) {
  ordered_json corrupt = ordered_json::array();
  ordered_json distrusted = ordered_json::array();
  for (const cache::ObjectProblem& problem : result.problems) {
    if (problem.what == What::kCorrupt)
      corrupt.push_back({{"key", problem.key.hex()},
                         {"path", problem.path},
                         {"check", problem.check ? to_string(*problem.check) : ""}});
    else if (problem.what == What::kDistrusted)
      distrusted.push_back({{"key", problem.key.hex()}, {"why", problem.detail}});
  }
  ordered_json json{{"checked", result.checked},
                    {"corrupt", corrupt},
                    {"untrusted", result.untrusted},
                    {"unreadable", result.unreadable},
                    {"quarantined", result.quarantined}};
  if (has_keys)
    json.update({{"trusted", result.trusted},
                 {"without_signer", result.without_signer},
                 {"distrusted", distrusted}});
  return json;
}

void print_result(const cache::VerifyResult& result, const VerifyOptions& options) {
  print(fmt::format("{} checked: {} corrupt, {} untrusted, {} unreadable\n",
                    counted(result.checked, "object", "objects"), result.corrupt,
                    result.untrusted, result.unreadable));
  if (result.corrupt > 0 && !options.quarantine)
    print("`kiln verify --quarantine` moves the corrupt objects out of the way\n");
  if (!options.keys.empty())
    print(
        fmt::format("{} signed by trusted keys, {} built here or taken unsigned, {} "
                    "distrusted\n",
                    result.trusted, result.without_signer, result.distrusted));
  if (result.distrusted > 0)
    print("`kiln clear --keys` with the same file removes the distrusted objects\n");
}

Result<int> run(Context& context, const VerifyOptions& options) {
  std::optional<cache::ListQuery> only;
  if (is_given(options.filter)) {
    only = KILN_TRY(make_query(context.config, options.filter));
    KILN_TRY(check_templates(context.config, options.filter));
  }
  const auto keys = options.keys.empty()
                        ? nullptr
                        : KILN_TRY(trusted_keys(context.config, options.keys));
  const auto cache = KILN_TRY(open_named_cache(context));
  const cache::VerifyResult result =
      KILN_TRY(cache->verify({.quarantine = options.quarantine ? cache::Quarantine::kYes
                                                               : cache::Quarantine::kNo,
                              .only = std::move(only),
                              .keys = keys.get(),
                              .on_problem =
                                  [&](const cache::ObjectProblem& problem) {
                                    print_problem(context, problem);
                                  },
                              .stop = context.stop->token()}));
  if (result.checked == 0 && is_given(options.filter))
    note_no_match(*cache);
  if (context.json) {
    print_json(result_json(result, keys != nullptr));
  } else {
    print_result(result, options);
  }
  return (result.corrupt + result.distrusted > 0 ? kBadBit : 0) |
         (result.untrusted > 0 ? kUntrustedBit : 0) |
         (result.unreadable > 0 ? kUnreadableBit : 0);
}

}  // namespace

Run add_verify(OptionSet& cli) {
  auto options = std::make_shared<VerifyOptions>();
  add_filter_options(cli, options->filter);
  cli.option(
      "--keys", options->keys, "FILE",
      "Also report entries that these public keys do not trust: they came with a "
      "signature by another or a revoked key, or are revoked themselves");
  cli.group(kRemovalGroup);
  cli.flag("--quarantine", options->quarantine,
           "Move corrupt objects into the cache's quarantine folder");
  cli.footer(
      "Filters combine with AND. An object that is too damaged to be recognised "
      "passes\n"
      "every filter.\n"
      "\n"
      "Exit status: 0 if all is well, else a sum of bits: bit 0 (1): some objects are\n"
      "corrupt, or --keys does not trust them; bit 3 (8): some are untrusted, since\n"
      "somebody else can write them; bit 4 (16): some are unreadable. 2 and 3 are no\n"
      "bits, so look for them first: 2 is wrong usage, and 3 says that there is no\n"
      "cache, as in an unmounted mount point.\n");
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
