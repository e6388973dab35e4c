// Which operations a model's training calls, and with which arguments: a preset's sizes
// on one side, the operations' structs on the other. Rows are those of one sequence: no
// kernel is another for more of them.

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "ops/preset.h"
#include "ops/softmax.h"
#include "util/try.h"

namespace kiln::ops {
namespace {

/// A plan that grows by what operations launch.
class Step {
 public:
  Step(const Preset& preset, const Device& device) : preset_(preset), device_(device) {}

  template <typename Args>
  Result<void> add(const Args& args) {
    auto launches = plan(args, device_);
    if (!launches)
      return fail(launches.error().code,
                  fmt::format("preset {}: {}", preset_.name, launches.error().message));
    std::move(launches->begin(), launches->end(), std::back_inserter(all_));
    return {};
  }

  Plan take() { return std::move(all_); }

 private:
  const Preset& preset_;
  const Device& device_;
  Plan all_;
};

/// The softmax of attention that is not fused.
Result<void> add_softmax(const Preset& preset, Step& step) {
  const Preset::Attention& attention = *preset.attention;
  KILN_TRY(step.add(SoftmaxForward{.dtype = preset.dtype,
                                   .heads = attention.heads,
                                   .sq = attention.sequence,
                                   .skv = attention.sequence,
                                   .mask = attention.mask}));
  return step.add(SoftmaxBackward{.dtype = preset.dtype,
                                  .heads = attention.heads,
                                  .sq = attention.sequence,
                                  .skv = attention.sequence,
                                  .mask = attention.mask});
}

}  // namespace

Result<Plan> launches_of(const Preset& preset, const Device& device) {
  Step step(preset, device);
  if (preset.attention)
    KILN_TRY(add_softmax(preset, step));
  return step.take();
}

}  // namespace kiln::ops
