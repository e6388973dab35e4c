#include "tests/support/kernels/wanted_kernels.h"

#include <gtest/gtest.h>

#include "ops/preset.h"
#include "request/selection.h"
#include "tests/support/kernels/run_plan.h"

namespace kiln_cpu {
namespace {

using kiln::render::TemplateCatalog;

std::set<std::string> wanted(std::string_view family, const TemplateCatalog& catalog) {
  std::set<std::string> names;
  const auto kernels = catalog.family(family).value();
  for (const TemplateCatalog::Kernel& kernel : kernels) {
    for (const auto& parameters : kernel->default_set())
      names.insert(kiln::request::format_template(kernel->name(), parameters.values()));
  }
  // How many multiprocessors it has decides on no kernel (preset_test.cc).
  const kiln::Device device{.capability = {9, 0}};
  for (const kiln::ops::BuiltInPreset& built_in : kiln::ops::built_in_presets()) {
    const auto preset = kiln::ops::find_preset(std::string(built_in.name)).value();
    const auto launches = kiln::ops::launches_of(preset, device).value();
    for (const kiln::ops::Launch& launch : launches) {
      const auto kernel = catalog.find(launch.kernel).value();
      if (kernel->family() == family)
        names.insert(kiln::request::format_template(
            launch.kernel, kernel->canonical(launch.parameters).value().values()));
    }
  }
  return names;
}

}  // namespace

std::set<std::string> wanted_but_missing(std::string_view family) {
  std::set<std::string> names = wanted(family, catalog_with({}));
  EXPECT_FALSE(names.empty()) << family;
  for (const Variant& variant : kernels_of_program())
    names.erase(kiln::request::format_template(variant.kernel(), variant.params()));
  return names;
}

}  // namespace kiln_cpu
