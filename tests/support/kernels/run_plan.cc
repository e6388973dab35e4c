#include "tests/support/kernels/run_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "request/selection.h"
#include "util/try.h"

namespace kiln_cpu {
namespace {

bool is_for(const Variant& variant, const kiln::ops::Launch& launch) {
  const bool has_entry = launch.entry.empty() ? variant.entry() == variant.kernel()
                                              : variant.entry() == launch.entry;
  return has_entry && variant.kernel() == launch.kernel &&
         std::ranges::all_of(launch.parameters, [&](const auto& parameter) {
           return variant.param(parameter.first) == parameter.second;
         });
}

std::string spelled(const kiln::ops::Launch& launch) {
  std::string text = launch.kernel;
  for (const auto& [name, value] : launch.parameters)
    text += fmt::format(" {}={}", name, value);
  return launch.entry.empty() ? text : fmt::format("{}, entry {}", text, launch.entry);
}

}  // namespace

std::vector<Variant> variants_of(std::initializer_list<std::string_view> names) {
  const auto catalog = catalog_with({});
  std::vector<Variant> all;
  for (const std::string_view name : names) {
    const auto pattern = kiln::request::parse_template_pattern(name).value();
    const auto spec = catalog.find(pattern.name).value();
    for (const std::string& entry : spec->entry_points())
      all.emplace_back(std::string(name), entry, catalog);
  }
  return all;
}

const Variant* find_variant(const kiln::ops::Launch& launch,
                            std::span<const Variant> variants) {
  const auto found = std::ranges::find_if(
      variants, [&](const Variant& variant) { return is_for(variant, launch); });
  return found == variants.end() ? nullptr : &*found;
}

kiln::Result<void> run_plan(kiln::ops::Launches plan, std::span<const Variant> variants,
                            const LaunchOptions& options) {
  for (kiln::ops::Launch& launch : plan) {
    const Variant* const found = find_variant(launch, variants);
    if (found == nullptr)
      return kiln::fail(
          kiln::ErrorCode::kNotFound,
          fmt::format("not among the kernels of this program: {}", spelled(launch)));
    const auto geometry = KILN_TRY(found->geometry(launch.extents));
    KILN_TRY(found->launch_with(geometry, options, launch.arguments.addresses(),
                                launch.arguments.sizes_bytes()));
  }
  return {};
}

kiln::Result<void> run_last_blocks(kiln::ops::Launches plan, std::int64_t blocks) {
  plan.resize(1);
  const Variant* const found = find_variant(plan.front(), kernels_of_program());
  if (found == nullptr)
    return run_plan(std::move(plan), {});  // says which
  const auto geometry = KILN_TRY(found->geometry(plan.front().extents));
  return run_plan(
      std::move(plan), kernels_of_program(),
      {.first_block = std::max<std::int64_t>(0, geometry.grid[0] - blocks)});
}

kiln::Device planned_device(kiln::ComputeCapability capability, int multiprocessors) {
  return {
      .name = "planned", .capability = capability, .multiprocessors = multiprocessors};
}

}  // namespace kiln_cpu
