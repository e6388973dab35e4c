// One kernel of the catalog: what its kernel.toml says of it, parsed and checked, and
// everything that can be asked of it. templates/README.md says what the parts mean.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/digest.h"
#include "device/architecture.h"
#include "kiln/geometry.h"
#include "kiln/request.h"
#include "kiln/result.h"
#include "render/expression.h"
#include "render/template_text.h"

namespace kiln::render {

enum class ParameterType : std::uint8_t { kEnum, kInteger, kBoolean };

/// "enum", "integer", "boolean".
[[nodiscard]] std::string_view to_string(ParameterType type);

struct Parameter {
  std::string name;
  ParameterType type = ParameterType::kEnum;
  std::vector<std::string> values{};           // enum and boolean, as declared
  std::int64_t min = 0;                        // integer, inclusive
  std::int64_t max = 0;                        // integer, inclusive
  bool power_of_two = false;                   // integer
  std::optional<std::string> default_value{};  // canonical; none: required
  std::string meaning;
};

/// The one text of `text` for this parameter: "0128" is "128".
/// Errors: kInvalidArgument with the parameter, what is allowed and the nearest value.
[[nodiscard]] Result<std::string> canonical_value(const Parameter& parameter,
                                                  std::string_view text);

struct LaunchArgument {
  std::string name;
  std::string meaning;
  std::optional<std::int64_t> default_value{};  // none: required
};

/// What determines a rendered text, beside the parameters.
struct KernelDigests {
  cache::Digest text;
  cache::Digest kernel_toml;
  cache::Digest prelude;
  cache::Digest renderer;
  friend bool operator==(const KernelDigests&, const KernelDigests&) = default;
};

/// Every parameter of one kernel with its canonical value: defaults filled in. Equal
/// for equal variants. Made by KernelSpec alone; ordered by name.
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

/// The parts of a spec as read from kernel.toml; kernel_file.h fills it in.
struct KernelParts;

/// Immutable; lives as long as somebody holds it, also past its catalog.
/// Thread safety: any number of threads may use one.
class KernelSpec {
 public:
  KernelSpec(std::unique_ptr<const KernelParts> parts);
  KernelSpec(const KernelSpec&) = delete;
  KernelSpec& operator=(const KernelSpec&) = delete;
  ~KernelSpec();

  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] const std::string& summary() const;
  [[nodiscard]] const std::string& family() const;  // the folder's name
  /// Where headers beside the text are looked for; empty for a built-in kernel.
  [[nodiscard]] const std::filesystem::path& folder() const;
  [[nodiscard]] const std::vector<std::string>& entry_points() const;
  [[nodiscard]] const std::vector<Parameter>& parameters() const;  // as declared
  [[nodiscard]] const std::vector<LaunchArgument>& launch_arguments() const;
  [[nodiscard]] const KernelDigests& digests() const;
  /// The text as written: what to scan for #include, in every branch.
  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] bool has_include() const;

  [[nodiscard]] device::ComputeCapability minimum_capability() const;
  [[nodiscard]] const std::vector<device::Architecture>& suffixed() const;

  /// 1 to 250 variants in the order declared.
  [[nodiscard]] const std::vector<CanonicalParameters>& default_set() const;
  /// Some of the default set, at least one.
  [[nodiscard]] const std::vector<CanonicalParameters>& quick_set() const;

  /// Defaults filled in, every value in its canonical text, constraints checked.
  /// Errors: kInvalidArgument; names parameter, allowed values, nearest match, or the
  /// broken constraint.
  [[nodiscard]] Result<CanonicalParameters> canonical(const Parameters& params) const;

  /// Why this variant is not for devices of `capability`, or nullopt if it is.
  [[nodiscard]] std::optional<std::string> excluded(
      const CanonicalParameters& params, device::ComputeCapability capability) const;

  /// The suffixed architecture wanted on a device of `capability`, if one is declared.
  [[nodiscard]] std::optional<device::Architecture> suffixed_for(
      device::ComputeCapability capability) const;

  /// The whole source: prelude and text. Equal parameters give equal bytes.
  /// Errors: kInvalidArgument, where a derived value overflows, say.
  [[nodiscard]] Result<RenderedSource> render(const CanonicalParameters& params) const;

  /// The geometry of `entry`; an empty name is the first entry point.
  /// Errors: kInvalidArgument for an argument that is missing, unknown or negative, a
  /// broken `require`, and what no CUDA device can launch; kNotFound for the entry.
  [[nodiscard]] Result<Geometry> geometry(const CanonicalParameters& params,
                                          const LaunchArguments& arguments,
                                          std::string_view entry = {}) const;

 private:
  std::unique_ptr<const KernelParts> parts_;  // never null
};

}  // namespace kiln::render
