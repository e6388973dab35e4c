#include "tests/bench/comparison.h"

#include <algorithm>
#include <utility>

#include "util/try.h"

namespace kiln::bench {
namespace {

double quantile(std::vector<double> values, double at) {
  std::sort(values.begin(), values.end());
  const double place = at * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] +
         (values[above] - values[below]) * (place - static_cast<double>(below));
}

double median(const std::vector<double>& values) {
  return quantile(values, 0.5);
}

struct Samples {
  std::vector<double> measured;
  std::vector<double> floor;
};

Result<double> take(const Sample& sample) {
  return sample ? KILN_TRY(sample()).count() : 0.0;
}

Result<Samples> sample_in_turns(const Row& row, unsigned rounds) {
  const Sides sides = KILN_TRY(row.prepare());
  KILN_TRY(take(sides.measured));
  KILN_TRY(take(sides.floor));
  Samples samples;
  for (unsigned i = 0; i < rounds; ++i) {
    // Who goes first changes, so that neither always finds the other's warm caches.
    const bool floor_first = i % 2 == 1;
    if (floor_first)
      samples.floor.push_back(KILN_TRY(take(sides.floor)));
    samples.measured.push_back(KILN_TRY(take(sides.measured)));
    if (!floor_first)
      samples.floor.push_back(KILN_TRY(take(sides.floor)));
  }
  return samples;
}

void evaluate(const Samples& samples, bool has_floor, Finding& finding) {
  std::vector<double> ratios;
  std::vector<double> of_limits;
  for (std::size_t i = 0; i < samples.measured.size(); ++i) {
    const double measured = samples.measured[i];
    const double floor = samples.floor[i];
    ratios.push_back(has_floor ? measured / floor : 0);
    of_limits.push_back(measured /
                        (finding.limit.ratio * floor + finding.limit.slack.count()));
  }
  finding.measured = Seconds(median(samples.measured));
  finding.floor = Seconds(median(samples.floor));
  finding.ratio = median(ratios);
  finding.of_limit = median(of_limits);
  const auto& steady = has_floor ? samples.floor : samples.measured;
  finding.noise = (quantile(steady, 0.75) - quantile(steady, 0.25)) / median(steady);
}

}  // namespace

Finding compare(const Row& row, unsigned rounds) {
  Finding finding{.name = row.name,
                  .what = row.what,
                  .floor_name = row.floor,
                  .limit = row.limit,
                  .rounds = rounds,
                  .error = std::nullopt};
  const auto samples = sample_in_turns(row, rounds);
  if (samples)
    evaluate(*samples, !row.floor.empty(), finding);
  else
    finding.error = samples.error();
  return finding;
}

}  // namespace kiln::bench
