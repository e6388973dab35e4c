#include "tools/taking.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "build/build_options.h"
#include "util/log.h"
#include "util/try.h"

namespace kiln::tools {

void add_taking_options(OptionSet& cli, TakingOptions& options) {
  cli.option("--min-serial", options.min_serial, "N",
             "Refuse a pack whose serial is less, which `kiln pack` has printed");
  cli.flag("--older", options.older,
           "Take a pack that is older than the last one of its name in this cache");
}

Result<Taking> taking(const TakingOptions& options, std::string name) {
  Taking taking{.name = std::move(name), .older = options.older};
  if (!options.min_serial.empty())
    taking.min_serial =
        KILN_TRY(parse_number("--min-serial", options.min_serial,
                              {0, std::numeric_limits<std::int64_t>::max()}));
  return taking;
}

cache::TakenPacks taken_packs(cache::Cache& cache) {
  return cache.mode() == cache::Mode::kOff
             ? cache::TakenPacks()
             : cache::TakenPacks(kiln::counted(cache, cache.layout().packs()));
}

Result<void> check_order(const cache::PackHeader& header, const Taking& taking,
                         const cache::TakenPacks& taken) {
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorCode::kUntrusted,
                fmt::format("the pack {} has {}, and {}",
                            header.name.empty() ? taking.name : header.name,
                            cache::order_text(header.serial, header.created_ns), why));
  };
  if (header.serial < taking.min_serial)
    return refuse(
        fmt::format("--min-serial {} asks for a newer one: ask again later, or "
                    "ask another server",
                    taking.min_serial));
  const auto last = taken.newer_than(header, taking.name);
  if (!last || taking.older)
    return {};
  return refuse(
      fmt::format("this cache has taken {}: the server, a proxy or a copy is "
                  "behind. --older takes it all the same",
                  cache::order_text(last->serial, last->created_ns)));
}

void remember(const cache::PackHeader& header, cache::Cache& cache) {
  if (cache.mode() != cache::Mode::kReadWrite)
    return;
  if (const auto added = taken_packs(cache).add(header); !added)
    log(LogLevel::kWarning,
        {"an older pack will not be noticed: ", added.error().message});
}

}  // namespace kiln::tools
