// A kernel compiled for the CPU together with what its kernel.toml says: launched like
// on a device, with the geometry computed from the launch arguments.

#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/geometry.h"
#include "kiln/request.h"
#include "kiln/result.h"
#include "render/catalog.h"
#include "tests/support/cpu_kernel/executor.h"
#include "tests/support/cpu_kernel/kernels.h"

namespace kiln_cpu {

/// Immutable. Thread safety: any number of threads may read one, one may launch.
class Variant {
 public:
  Variant(const CpuKernel& kernel, const kiln::render::TemplateCatalog& catalog);

  /// "scaled_softmax_fwd:dtype=bf16,max_cols=any", as it was listed.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& kernel() const { return spec_->name(); }
  [[nodiscard]] bool is_forward() const { return kernel().ends_with("_fwd"); }
  [[nodiscard]] std::string_view entry() const { return kernel_.entry; }
  [[nodiscard]] const CpuKernel& compiled() const { return kernel_; }
  /// Every parameter, the defaults too.
  [[nodiscard]] const kiln::Parameters& params() const { return params_; }
  [[nodiscard]] const std::string& param(const std::string& name) const {
    return params_.at(name);
  }
  [[nodiscard]] kiln::Result<kiln::Geometry> geometry(
      const kiln::LaunchArguments& arguments) const;

  /// `arguments` have exactly the sizes of the kernel's parameters.
  template <typename... Types>
  [[nodiscard]] kiln::Result<void> launch(const kiln::Geometry& geometry,
                                          const LaunchOptions& options,
                                          Types... arguments) const {
    const std::array<void*, sizeof...(Types)> values{&arguments...};
    constexpr std::array<std::size_t, sizeof...(Types)> kSizes{sizeof(Types)...};
    return launch_with(geometry, options, values, kSizes);
  }

  /// The same with arguments by address. Errors: also kInvalidArgument, for a wrong
  /// number or size of arguments, as Kernel::launch_with() refuses them.
  [[nodiscard]] kiln::Result<void> launch_with(
      const kiln::Geometry& geometry, const LaunchOptions& options,
      std::span<void* const> arguments, std::span<const std::size_t> sizes_bytes) const;

 private:
  std::string name_;
  CpuKernel kernel_;
  std::shared_ptr<const kiln::render::KernelSpec> spec_;
  kiln::Parameters params_;
};

/// The templates built in, and those of `folder` if there is one. A rule that one of
/// them breaks ends the program.
[[nodiscard]] kiln::render::TemplateCatalog catalog_with(
    const std::filesystem::path& folder);

/// What GoogleTest calls one.
void PrintTo(const Variant& variant, std::ostream* out);

/// "scaled_softmax_fwd_dtype_bf16_max_cols_any": the name of a test.
[[nodiscard]] std::string test_name(const Variant& variant);
/// The same for INSTANTIATE_TEST_SUITE_P.
inline constexpr auto kNameOfVariant = [](const auto& info) {
  return test_name(info.param);
};

}  // namespace kiln_cpu
