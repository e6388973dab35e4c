// One row of the table: what Kiln does, beside the least that it could cost. Both are
// sampled in turns, in one run, so that they meet the same machine; only ratios of
// medians are trusted. Nothing here is a test: no time makes anything fail.

#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kiln/result.h"

namespace kiln::bench {

using Seconds = std::chrono::duration<double>;

/// One measurement. It times what it measures itself, and leaves its own setup out.
using Sample = std::function<Result<Seconds>()>;

struct Sides {
  Sample measured;
  Sample floor{};  // empty: the limit is an absolute one
};

/// measured <= ratio * floor + slack.
struct Limit {
  double ratio = 1;
  Seconds slack{0};
};

struct Row {
  std::string name;     // as filters say it: "hit/124K"
  std::string what;     // as the table says it
  std::string floor{};  // what the floor does; "" for none
  Limit limit;
  /// Makes what both sides need; not timed. What it makes lives as long as the sides.
  std::function<Result<Sides>()> prepare;
};

/// Medians over the rounds, but for `error`.
struct Finding {
  std::string name;
  std::string what;
  std::string floor_name;
  Limit limit;
  unsigned rounds = 0;
  Seconds measured{0};
  Seconds floor{0};
  double ratio = 0;     // of each round's own pair
  double of_limit = 0;  // measured / (ratio * floor + slack), of each round's own pair
  double noise = 0;     // interquartile range of the floor, as a part of its median
  std::optional<Error> error;

  [[nodiscard]] bool is_within() const { return of_limit <= 1; }
};

/// Samples both sides `rounds` times in turns, after one turn that does not count.
[[nodiscard]] Finding compare(const Row& row, unsigned rounds);

/// How long `work`, a Result-returning function, takes; its error if it has one.
template <typename Work>
Result<Seconds> timed(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  auto done = work();
  const Seconds elapsed = std::chrono::steady_clock::now() - begin;
  if (!done)
    return tl::unexpected(std::move(done).error());
  return elapsed;
}

/// The same a call, of `calls` of them.
template <typename Call>
Result<Seconds> timed_each(std::size_t calls, const Call& call) {
  const auto all = timed([&]() -> Result<void> {
    for (std::size_t i = 0; i < calls; ++i) {
      if (auto done = call(); !done)
        return tl::unexpected(std::move(done).error());
    }
    return {};
  });
  return all.map([&](Seconds taken) { return taken / calls; });
}

}  // namespace kiln::bench
