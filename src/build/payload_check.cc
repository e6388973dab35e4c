#include "build/payload_check.h"

#include <fmt/format.h>

#include "attention/plan.h"
#include "device/cubin.h"
#include "util/try.h"

namespace kiln {

Result<device::Target> target_of(const cache::StoredObject& object) {
  const auto architecture = device::parse_architecture(object.target());
  if (!architecture || object.kind() == cache::Kind::kPlan) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("'{}' is no target of a kernel", object.target()));
  }
  const device::Target target{*architecture, object.kind() == cache::Kind::kPtx
                                                 ? device::ImageKind::kPtx
                                                 : device::ImageKind::kCubin};
  if (to_string(target) != object.target()) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("a {} object states the target '{}'",
                            to_string(object.kind()), object.target()));
  }
  return target;
}

namespace {

Result<void> check_stored_plan(const cache::StoredObject& object) {
  const auto plan = KILN_TRY(attention::decode_plan(object.payload()));
  const auto capability = KILN_TRY(attention::bound_capability(plan));
  const device::Target target{{capability}, device::ImageKind::kCubin};
  if (to_string(target) != object.target())
    return fail(ErrorCode::kCorrupt,
                fmt::format("an execution plan for {} states the target '{}'",
                            to_string(target), object.target()));
  return attention::check_kernels(plan);
}

}  // namespace

Result<void> check_stored_payload(const cache::StoredObject& object) {
  if (object.kind() == cache::Kind::kPlan)
    return check_stored_plan(object);
  const device::Target target = KILN_TRY(target_of(object));
  return device::check_image(object.payload(), target,
                             KILN_TRY(object.lowered_names()));
}

}  // namespace kiln
