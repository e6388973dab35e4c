// The part of KernelSpec that runs at most once: expands the sets and, for a kernel
// from a folder, tries every variant of the default set.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "render/kernel_spec.h"
#include "util/nearest.h"
#include "util/try.h"

namespace kiln::render {

namespace {

constexpr std::size_t kMaxVariants = 250;
// Per product, before constraints: limits the work, not the variants that are kept.
constexpr std::size_t kMaxCombinations = 10000;

}  // namespace

Result<std::shared_ptr<const KernelSpec>> KernelSpec::make(KernelParts parts,
                                                           SetDeclarations sets,
                                                           VariantChecks checks) {
  // make_shared cannot reach the private constructor.
  std::shared_ptr<const KernelSpec> spec(
      new KernelSpec(std::move(parts), std::move(sets)));
  if (checks == VariantChecks::kTryAll) {
    Variants variants = KILN_TRY(spec->expand_sets());
    std::call_once(spec->sets_expanded_,
                   [&] { spec->variants_ = std::move(variants); });
    KILN_TRY(spec->try_variants());
  }
  return spec;
}

const KernelSpec::Variants& KernelSpec::variants() const {
  // Built-in sets were expanded before, when Kiln was built, so there is a value().
  std::call_once(sets_expanded_, [this] { variants_ = expand_sets().value(); });
  return variants_;
}

Result<KernelSpec::Variants> KernelSpec::expand_sets() const {
  Variants variants;
  variants.default_set = KILN_TRY(expand(sets_.default_set, "default_set"));
  if (sets_.quick.empty())
    variants.quick = {variants.default_set.front()};
  else
    variants.quick = KILN_TRY(expand(sets_.quick, "quick"));
  KILN_TRY(check_quick(variants));
  return variants;
}

Result<std::vector<CanonicalParameters>> KernelSpec::expand(
    const std::vector<SetProduct>& products, std::string_view set) const {
  std::set<Parameters> seen;
  std::vector<CanonicalParameters> out;
  for (const SetProduct& product : products) {
    bool any = false;
    std::string last = "it has no combination";
    for (const Parameters& params : KILN_TRY(combinations(product))) {
      Parameters full = KILN_TRY(fill_in(params));
      const auto broken = broken_constraint(full);
      if (!broken)
        return error_at(product.line, broken.error().message);
      if (*broken) {
        last = **broken;
        continue;
      }
      any = true;
      if (seen.insert(full).second)
        out.push_back(CanonicalParameters(std::move(full)));
    }
    if (!any)
      return error_at(product.line,
                      fmt::format("nothing is left of this {} product: {}", set, last));
    if (out.size() > kMaxVariants)
      return error_at(product.line,
                      fmt::format("{} has over {} variants", set, kMaxVariants));
  }
  if (out.empty())
    return error_at(parts_.line, fmt::format("{} is empty", set));
  return out;
}

/// Every combination of the product's values. Each value is checked against its
/// parameter, so that afterwards only constraints can exclude a combination.
Result<std::vector<Parameters>> KernelSpec::combinations(
    const SetProduct& product) const {
  std::vector<Parameters> out{Parameters{}};
  std::vector<std::string> names;
  for (const Parameter& parameter : parts_.parameters) {
    names.push_back(parameter.name);
    const auto at = product.values.find(parameter.name);
    if (at == product.values.end()) {
      if (!parameter.default_value)
        return error_at(product.line, fmt::format("the required parameter '{}' is "
                                                  "missing here",
                                                  parameter.name));
      continue;
    }
    std::vector<std::string> values = at->second;
    if (values == std::vector<std::string>{"*"})
      values = parameter.values;
    if (values.empty())
      return error_at(product.line,
                      fmt::format("'{}' has no values here{}", parameter.name,
                                  parameter.type == ParameterType::kInteger
                                      ? "; '*' is for enums and booleans"
                                      : ""));
    std::vector<Parameters> longer;
    for (const std::string& text : values) {
      auto value = canonical_value(parameter, text);
      if (!value)
        return error_at(product.line, value.error().message);
      for (const Parameters& shorter : out)
        longer.emplace_back(shorter).emplace(parameter.name, *value);
    }
    out = std::move(longer);
    if (out.size() > kMaxCombinations)
      return error_at(product.line,
                      fmt::format("over {} combinations", kMaxCombinations));
  }
  for (const auto& [name, values] : product.values) {
    if (std::ranges::find(names, name) == names.end())
      return error_at(product.line, fmt::format("no parameter '{}'{}", name,
                                                did_you_mean(name, names)));
  }
  return out;
}

Result<void> KernelSpec::check_quick(const Variants& variants) const {
  const auto& all = variants.default_set;
  for (const CanonicalParameters& variant : variants.quick) {
    if (std::ranges::find(all, variant) == all.end())
      return error_at(sets_.quick.front().line,
                      "quick names a variant that the default set has not");
  }
  return {};
}

/// What depends only on parameters must work for every variant of the default set; so
/// must the geometry with all arguments 1, if `require` admits that.
Result<void> KernelSpec::try_variants() const {
  LaunchArguments ones;
  for (const LaunchArgument& argument : parts_.arguments)
    ones.emplace(argument.name, 1);
  for (const CanonicalParameters& variant : default_set()) {
    std::vector<Value> values = values_of(variant.values());
    if (const auto source = render(variant); !source)
      return error_at(parts_.line, source.error().message);
    KILN_TRY(append_arguments(ones, values));
    const bool admitted =
        std::ranges::all_of(parts_.require, [&](const Condition& require) {
          return require.expression.evaluate(values).value_or(0) != 0;
        });
    for (const std::string& entry : parts_.entry_points) {
      const auto result = geometry(variant, ones, entry);
      if (!result && admitted)
        return error_at(parts_.line, result.error().message);
    }
  }
  return {};
}

}  // namespace kiln::render
