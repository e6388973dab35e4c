// One kernel of the catalog: its kernel.toml, parsed and checked, and the queries on
// it. templates/README.md says what the parts mean.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/digest.h"
#include "device/architecture.h"
#include "kiln/geometry.h"
#include "kiln/request.h"
#include "kiln/result.h"
#include "render/expression.h"
#include "render/kernel_parts.h"

namespace kiln::render {

/// All parameters of one kernel with their canonical values, defaults included, ordered
/// by name. Equal variants compare equal. Only KernelSpec creates them.
class CanonicalParameters {
 public:
  [[nodiscard]] const Parameters& values() const { return values_; }
  friend auto operator<=>(const CanonicalParameters&,
                          const CanonicalParameters&) = default;

 private:
  friend class KernelSpec;
  explicit CanonicalParameters(Parameters values) : values_(std::move(values)) {}
  Parameters values_;
};

struct RenderedSource {
  std::string text;
};

/// Whether reading a kernel parses its texts, expands its sets, renders every variant
/// of the default set once, and looks for includes. Built-in kernels passed this when
/// Kiln was built, and include nothing. A process that only gets a kernel from the
/// cache needs none of it.
enum class VariantChecks : std::uint8_t { kTryAll, kSkip };

/// Immutable; may outlive its catalog.
/// Thread safety: any number of threads may use one.
class KernelSpec {
 public:
  /// Errors: kInvalidArgument "<file>:<line>: <reason>".
  [[nodiscard]] static Result<std::shared_ptr<const KernelSpec>> make(
      KernelParts parts, SetDeclarations sets, VariantChecks checks);

  [[nodiscard]] const std::string& name() const { return parts_.name; }
  [[nodiscard]] const std::string& summary() const { return parts_.summary; }
  /// The folder's name.
  [[nodiscard]] const std::string& family() const { return parts_.family; }
  /// Where headers beside the texts are; empty for a built-in kernel.
  [[nodiscard]] const std::filesystem::path& folder() const { return parts_.folder; }
  [[nodiscard]] const std::vector<std::string>& entry_points() const {
    return parts_.entry_points;
  }
  /// In the order declared.
  [[nodiscard]] const std::vector<Parameter>& parameters() const {
    return parts_.parameters;
  }
  [[nodiscard]] const std::vector<LaunchArgument>& launch_arguments() const {
    return parts_.arguments;
  }
  [[nodiscard]] const KernelDigests& digests() const { return parts_.digests; }
  /// The texts as written, with the #line directives between them: the text to scan for
  /// #include, in every branch.
  [[nodiscard]] std::string text() const;
  /// See render::has_include().
  [[nodiscard]] bool has_include() const { return parts_.has_include; }
  /// For `kiln templates` to show; excluded() decides.
  [[nodiscard]] const Targets& targets() const { return parts_.targets; }

  /// 1 to 250 variants in the order declared.
  [[nodiscard]] const std::vector<CanonicalParameters>& default_set() const {
    return variants().default_set;
  }
  /// A subset of the default set, with at least one variant.
  [[nodiscard]] const std::vector<CanonicalParameters>& quick_set() const {
    return variants().quick;
  }

  /// Fills in defaults, makes every value canonical and checks the constraints. Errors:
  /// kInvalidArgument, with the parameter, its allowed values and the nearest one, or
  /// with the broken constraint.
  [[nodiscard]] Result<CanonicalParameters> canonical(const Parameters& params) const;

  /// Why this variant does not support `capability`; nullopt if it does.
  [[nodiscard]] std::optional<std::string> excluded(
      const CanonicalParameters& params, device::ComputeCapability capability) const;

  /// The lowest capability that this variant supports.
  [[nodiscard]] device::ComputeCapability minimum_for(
      const CanonicalParameters& params) const;

  /// The whole source: prelude and texts. Equal parameters give equal bytes.
  /// Errors: kInvalidArgument, for example if a derived value overflows.
  [[nodiscard]] Result<RenderedSource> render(const CanonicalParameters& params) const;

  /// The geometry of `entry`; an empty name is the first entry point. Errors:
  /// kInvalidArgument for a missing, unknown or negative argument, a broken `require`,
  /// and a geometry that no CUDA device can launch; kNotFound for the entry.
  [[nodiscard]] Result<Geometry> geometry(const CanonicalParameters& params,
                                          const LaunchArguments& arguments,
                                          std::string_view entry = {}) const;
  /// The same of values_of(params), for one who launches often.
  [[nodiscard]] Result<Geometry> geometry(std::vector<Value> values,
                                          const LaunchArguments& arguments,
                                          std::string_view entry) const;

  /// What expressions see of the parameters, derived values too.
  [[nodiscard]] std::vector<Value> values_of(const CanonicalParameters& params) const {
    return values_of(params.values());
  }

 private:
  struct Variants {
    std::vector<CanonicalParameters> default_set;
    std::vector<CanonicalParameters> quick;
  };

  KernelSpec(KernelParts parts, SetDeclarations sets)
      : parts_(std::move(parts)), sets_(std::move(sets)) {}

  [[nodiscard]] tl::unexpected<Error> unknown_parameter(std::string_view name) const;
  [[nodiscard]] Result<Parameters> fill_in(const Parameters& params) const;
  [[nodiscard]] std::vector<Value> values_of(const Parameters& params) const;
  [[nodiscard]] Result<void> check_derived(std::span<const Value> values) const;
  [[nodiscard]] Result<std::optional<std::string>> broken_constraint(
      const Parameters& params) const;
  [[nodiscard]] TextValues text_values(const Parameters& params,
                                       std::span<const Value> values) const;
  [[nodiscard]] Result<void> append_arguments(const LaunchArguments& arguments,
                                              std::vector<Value>& values) const;
  [[nodiscard]] Result<Variants> expand_sets() const;
  /// Expands the sets at the first call, unless make() has done so.
  [[nodiscard]] const Variants& variants() const;
  [[nodiscard]] Result<std::vector<CanonicalParameters>> expand(
      const std::vector<SetProduct>& products, std::string_view set) const;
  [[nodiscard]] Result<std::vector<Parameters>> combinations(
      const SetProduct& product) const;
  [[nodiscard]] Result<void> check_quick(const Variants& variants) const;
  [[nodiscard]] Result<void> try_variants() const;
  [[nodiscard]] tl::unexpected<Error> error(std::string_view what) const;
  [[nodiscard]] tl::unexpected<Error> error_at(std::size_t line,
                                               std::string_view what) const;

  const KernelParts parts_;
  const SetDeclarations sets_;

  mutable std::once_flag sets_expanded_;
  mutable Variants variants_;  // written only under sets_expanded_
};

}  // namespace kiln::render
