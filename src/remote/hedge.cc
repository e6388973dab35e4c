#include "remote/hedge.h"

namespace kiln::remote {

TimePoint Hedge::deadline() const {
  const bool may_start = build_ == Build::kAllowed && !is_building_ && !has_built_;
  return may_start && !has_remote_ended_ ? build_at_ : TimePoint::max();
}

Hedge::Step Hedge::on_remote(bool is_hit) {
  has_remote_ended_ = true;
  if (is_hit)
    return Step::kTakeRemote;
  if (is_building_)
    return Step::kWait;
  if (has_built_)
    return Step::kTakeBuild;  // its error says why
  return build_ == Build::kAllowed ? start_build() : Step::kGiveUp;
}

Hedge::Step Hedge::on_build(BuildEnd end) {
  is_building_ = false;
  has_built_ = true;
  if (end == BuildEnd::kImpossible && !has_remote_ended_)
    return Step::kWait;
  is_overtaken_ = !has_remote_ended_;
  return Step::kTakeBuild;
}

Hedge::Step Hedge::start_build() {
  is_building_ = true;
  return Step::kStartBuild;
}

}  // namespace kiln::remote
