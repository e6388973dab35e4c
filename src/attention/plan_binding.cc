#include "attention/plan_binding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>

#include "util/try.h"

namespace kiln::attention {
namespace {

// In the order of the profile file. cuDNN 9.19 lets the other eleven differ (name,
// clocks, memory, caches, ids, warp size, blocks per SM).
constexpr std::array<std::string_view, 12> kBound{"maxGridSize",
                                                  "maxBlockSize",
                                                  "regsPerBlock",
                                                  "multiProcessorCount",
                                                  "maxSharedMemoryPerBlock",
                                                  "maxSharedMemoryPerBlockOptin",
                                                  "reservedSharedMemoryPerBlock",
                                                  "maxRegistersPerSM",
                                                  "maxThreadsPerBlock",
                                                  "maxThreadsPerSM",
                                                  "deviceVer",
                                                  "driverVer"};

std::string value_text(const BoundProperty& property) {
  return property.values.size() == 1 ? std::to_string(property.values.front())
                                     : fmt::format("{}", property.values);
}

}  // namespace

Result<std::vector<BoundProperty>> binding_of(std::string_view device_json) {
  const auto json = nlohmann::json::parse(device_json, nullptr, false);
  if (!json.is_object())
    return refuse("the device's properties are no JSON object");
  std::vector<BoundProperty> bound;
  for (const std::string_view name : kBound) {
    const auto found = json.find(name);
    const auto wrong = [&] {
      return refuse("the device's property '{}' is missing, or no integers", name);
    };
    if (found == json.end())
      return wrong();
    BoundProperty property{.name = std::string(name), .values = {}};
    for (const auto& value :
         found->is_array() ? *found : nlohmann::json::array({*found})) {
      if (!value.is_number_integer())
        return wrong();
      property.values.push_back(value.get<std::int64_t>());
    }
    bound.push_back(std::move(property));
  }
  return bound;
}

std::string describe_difference(std::span<const BoundProperty> plan,
                                std::span<const BoundProperty> device) {
  if (plan.size() != device.size())
    return "they are described by other properties";
  std::vector<std::string> differences;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (plan[i] != device[i])
      differences.push_back(fmt::format("{} is {} in the plan, {} here", plan[i].name,
                                        value_text(plan[i]), value_text(device[i])));
  }
  return fmt::format("{}", fmt::join(differences, ", "));
}

}  // namespace kiln::attention
