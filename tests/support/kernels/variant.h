// A kernel of the templates with parameters and an entry point, and what its
// kernel.toml says: launched like on a device, with the geometry computed from the
// launch arguments.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include "kiln/device.h"
#include "kiln/geometry.h"
#include "kiln/request.h"
#include "kiln/result.h"
#include "render/catalog.h"
#include "tests/support/kernels/order.h"

namespace kiln_cpu {

struct LaunchOptions {
  Order order = Order::kAscending;
  kiln::ComputeCapability capability{9, 0};  // what it is compiled for
  /// The blocks of the grid that run.
  std::int64_t first_block = 0;
  std::int64_t most_blocks = INT64_MAX;
};

/// Immutable. Thread safety: any number of threads may read one, one may launch.
class Variant {
 public:
  /// `name`: "scaled_softmax_fwd:dtype=bf16,max_cols=any".
  Variant(std::string name, std::string entry,
          const kiln::render::TemplateCatalog& catalog);

  /// As it was listed.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& kernel() const { return spec_->name(); }
  [[nodiscard]] bool is_forward() const { return kernel().ends_with("_fwd"); }
  [[nodiscard]] std::string_view entry() const { return entry_; }
  /// Every parameter, the defaults too.
  [[nodiscard]] const kiln::Parameters& params() const { return params_; }
  [[nodiscard]] const std::string& param(const std::string& name) const {
    return params_.at(name);
  }
  [[nodiscard]] kiln::Result<kiln::Geometry> geometry(
      const kiln::LaunchArguments& arguments) const;

  /// `arguments` have exactly the sizes of the kernel's parameters. Errors: those of
  /// run_kernel(); kDevice also for what the interpreter noticed.
  template <typename... Types>
  [[nodiscard]] kiln::Result<void> launch(const kiln::Geometry& geometry,
                                          const LaunchOptions& options,
                                          Types... arguments) const {
    const std::array<void*, sizeof...(Types)> values{&arguments...};
    constexpr std::array<std::size_t, sizeof...(Types)> kSizes{sizeof(Types)...};
    return launch_with(geometry, options, values, kSizes);
  }

  /// The same with arguments by address.
  [[nodiscard]] kiln::Result<void> launch_with(
      const kiln::Geometry& geometry, const LaunchOptions& options,
      std::span<void* const> arguments, std::span<const std::size_t> sizes_bytes) const;

 private:
  std::string name_;
  std::string entry_;
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
