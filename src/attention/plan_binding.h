// Which properties of a device a plan is bound to: exactly those that cuDNN compares
// when it loads one. Found by changing each of the 23 in turn (plan_portability_test).

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/plan.h"
#include "kiln/result.h"

namespace kiln::attention {

/// The bound properties of a device, as cuDNN spells them ("deviceVer", "driverVer",
/// "multiProcessorCount", …), from its 23 properties as JSON. Errors:
/// kInvalidArgument, naming the property that is missing or not an integer.
[[nodiscard]] Result<std::vector<BoundProperty>> binding_of(
    std::string_view device_json);

/// The differences in words: "driverVer is 13010 there, 13000 here". Empty: none, so
/// the plan can be loaded.
[[nodiscard]] std::string describe_difference(std::span<const BoundProperty> plan,
                                              std::span<const BoundProperty> device);

}  // namespace kiln::attention
