#include "render/kernel_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "util/nearest.h"
#include "util/text.h"
#include "util/try.h"
#include "util/words.h"

namespace kiln::render {

namespace {

// Source: CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability"; the highest of any capability, so that a device may allow less.
using Limits = std::array<std::int64_t, 3>;
constexpr Limits kMaxGrid{2147483647, 65535, 65535};
constexpr Limits kMaxBlock{1024, 1024, 64};
constexpr std::int64_t kMaxBlockThreads = 1024;
constexpr std::int64_t kMaxSharedBytes = 232448;  // 227 KiB: 9.0, 10.0

bool is_power_of_two(std::int64_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

bool allows(const Parameter& parameter, std::int64_t value) {
  return value >= parameter.min && value <= parameter.max &&
         (!parameter.power_of_two || is_power_of_two(value));
}

/// The allowed integer closest to `value`; kernel.toml guarantees that there is one.
std::int64_t nearest_allowed(const Parameter& parameter, std::int64_t value) {
  const std::int64_t inside = std::clamp(value, parameter.min, parameter.max);
  if (!parameter.power_of_two)
    return inside;
  std::optional<std::int64_t> best;
  for (int shift = 0; shift < 63; ++shift) {
    const std::int64_t power = std::int64_t{1} << shift;
    if (allows(parameter, power) &&
        (!best || std::abs(power - inside) < std::abs(*best - inside)))
      best = power;
  }
  return best.value_or(inside);
}

std::string allowed_values(const Parameter& parameter) {
  if (parameter.type != ParameterType::kInteger)
    return fmt::format("{}", fmt::join(parameter.values, ", "));
  return fmt::format("{} to {}{}", parameter.min, parameter.max,
                     parameter.power_of_two ? ", powers of two" : "");
}

Result<std::string> canonical_integer(const Parameter& parameter,
                                      std::string_view text) {
  const auto value = number_of<std::int64_t>(text);
  if (value && allows(parameter, *value))
    return fmt::to_string(*value);
  return refuse(
      "parameter '{}' cannot be '{}'; allowed: {}{}", parameter.name, text,
      allowed_values(parameter),
      value ? fmt::format("; the nearest is {}", nearest_allowed(parameter, *value))
            : "");
}

std::string_view boolean_text(bool value) {
  return value ? "true" : "false";
}

/// Goes before the text of `source`; #line must begin a line.
void append_line_directive(std::string& out, const SourceText& source) {
  out +=
      fmt::format("{}#line 1 \"{}\"\n", out.ends_with('\n') ? "" : "\n", source.name);
}

std::string known_names(const std::vector<std::string>& names) {
  return names.empty() ? "there are none"
                       : fmt::format("there are: {}", fmt::join(names, ", "));
}

Result<std::array<std::uint32_t, 3>> evaluate_extent(
    const std::vector<Expression>& expressions, const Limits& limits,
    std::string_view what, std::span<const Value> values) {
  std::array<std::uint32_t, 3> extent{1, 1, 1};
  for (std::size_t axis = 0; axis < expressions.size(); ++axis) {
    const std::int64_t value = KILN_TRY(expressions[axis].evaluate(values));
    if (value < 1 || value > limits[axis])
      return refuse("{}.{} is {}; CUDA allows 1 to {} ('{}')", what, "xyz"[axis], value,
                    limits[axis], expressions[axis].text());
    extent[axis] = static_cast<std::uint32_t>(value);
  }
  return extent;
}

/// `values`: those of the kernel's symbols, then the launch arguments.
Result<Geometry> evaluate_geometry(const EntryGeometry& declared,
                                   std::span<const Value> values) {
  Geometry out;
  out.grid = KILN_TRY(evaluate_extent(declared.grid, kMaxGrid, "grid", values));
  out.block = KILN_TRY(evaluate_extent(declared.block, kMaxBlock, "block", values));
  const std::int64_t threads = std::int64_t{out.block[0]} * out.block[1] * out.block[2];
  if (threads > kMaxBlockThreads)
    return refuse("a block of {} threads; CUDA allows 1 to {}", threads,
                  kMaxBlockThreads);
  const std::int64_t shared = KILN_TRY(declared.shared_bytes.evaluate(values));
  if (shared < 0 || shared > kMaxSharedBytes)
    return refuse("{} bytes of dynamic shared memory; CUDA allows 0 to {}", shared,
                  kMaxSharedBytes);
  out.shared_bytes = static_cast<std::uint32_t>(shared);
  return out;
}

}  // namespace

std::string_view to_string(ParameterType type) {
  return word_of(type, {"enum", "integer", "boolean"});
}

Result<std::string> canonical_value(const Parameter& parameter, std::string_view text) {
  if (parameter.type == ParameterType::kInteger)
    return canonical_integer(parameter, text);
  std::string wanted(text);
  if (parameter.type == ParameterType::kEnum) {
    if (const auto value = number_of<std::int64_t>(text))
      wanted = fmt::to_string(*value);
  }
  const auto& values = parameter.values;
  if (std::ranges::find(values, wanted) != values.end())
    return wanted;
  return refuse("parameter '{}' cannot be '{}'; allowed: {}{}", parameter.name, text,
                allowed_values(parameter), did_you_mean(text, values));
}

tl::unexpected<Error> KernelSpec::error(std::string_view what) const {
  return refuse("{}: {}", parts_.name, what);
}

tl::unexpected<Error> KernelSpec::error_at(std::size_t line,
                                           std::string_view what) const {
  return refuse("{}:{}: {}: {}", parts_.toml_file, line, parts_.name, what);
}

tl::unexpected<Error> KernelSpec::unknown_parameter(std::string_view name) const {
  std::vector<std::string> names;
  for (const Parameter& parameter : parts_.parameters) names.push_back(parameter.name);
  return error(fmt::format("no parameter '{}'{}; {}", name, did_you_mean(name, names),
                           known_names(names)));
}

/// All parameters with their canonical texts; does not check constraints.
Result<Parameters> KernelSpec::fill_in(const Parameters& params) const {
  for (const auto& given : params) {
    if (std::ranges::find(parts_.parameters, given.first, &Parameter::name) ==
        parts_.parameters.end())
      return unknown_parameter(given.first);
  }
  Parameters out;
  for (const Parameter& parameter : parts_.parameters) {
    const auto given = params.find(parameter.name);
    if (given == params.end() && !parameter.default_value)
      return error(fmt::format("parameter '{}' is required; allowed: {}",
                               parameter.name, allowed_values(parameter)));
    const std::string& text =
        given == params.end() ? *parameter.default_value : given->second;
    out.emplace(parameter.name,
                KILN_TRY(about(parts_.name, canonical_value(parameter, text))));
  }
  return out;
}

Result<CanonicalParameters> KernelSpec::canonical(const Parameters& params) const {
  Parameters full = KILN_TRY(fill_in(params));
  if (const auto broken = KILN_TRY(broken_constraint(full)))
    return error(*broken);
  return CanonicalParameters(std::move(full));
}

/// Values by slot; nullopt for a derived value that check_derived() refuses.
std::vector<Value> KernelSpec::values_of(const Parameters& params) const {
  std::vector<Value> values(parts_.symbols.size());
  for (std::size_t i = 0; i < parts_.parameters.size(); ++i) {
    const Parameter& parameter = parts_.parameters[i];
    const std::string& text = params.at(parameter.name);
    const ParameterSlots& slots = parts_.slots[i];
    if (slots.value)
      values[*slots.value] = parameter.type == ParameterType::kBoolean
                                 ? std::optional<std::int64_t>(text == "true" ? 1 : 0)
                                 : number_of<std::int64_t>(text);
    for (std::size_t k = 0; k < slots.flags.size(); ++k)
      values[slots.flags[k]] = parameter.values[k] == text ? 1 : 0;
  }
  for (const Constant& constant : parts_.constants) {
    if (constant.slot)
      values[*constant.slot] = constant.value;
  }
  for (const Derived& derived : parts_.derived) {
    if (const auto value = derived.expression.evaluate(values))
      values[derived.slot] = *value;
  }
  return values;
}

Result<void> KernelSpec::check_derived(std::span<const Value> values) const {
  for (const Derived& derived : parts_.derived) {
    if (!values[derived.slot])
      KILN_TRY(about(fmt::format("{}: derived '{}'", parts_.name, derived.name),
                     derived.expression.evaluate(values)));
  }
  return {};
}

/// The message of the first constraint that does not hold. An error means that an
/// expression of the kernel cannot be computed for these parameters.
Result<std::optional<std::string>> KernelSpec::broken_constraint(
    const Parameters& params) const {
  const std::vector<Value> values = values_of(params);
  for (const Condition& constraint : parts_.constraints) {
    const auto holds = constraint.expression.evaluate(values);
    if (!holds) {
      KILN_TRY(check_derived(values));  // usually the cause
      return error(fmt::format("constraint {}", holds.error().message));
    }
    if (*holds == 0)
      return fmt::format("{} ('{}' does not hold)", constraint.message,
                         constraint.expression.text());
  }
  KILN_TRY(check_derived(values));
  for (const TargetLimit& limit : parts_.targets.limits) {
    if (const auto when = limit.when.evaluate(values); !when)
      return error(fmt::format("target limit {}", when.error().message));
  }
  return std::nullopt;
}

device::ComputeCapability KernelSpec::minimum_for(
    const CanonicalParameters& params) const {
  device::ComputeCapability minimum = parts_.targets.minimum;
  if (parts_.targets.limits.empty())
    return minimum;
  const std::vector<Value> values = values_of(params.values());
  for (const TargetLimit& limit : parts_.targets.limits) {
    // broken_constraint() made sure that this can be evaluated.
    if (limit.when.evaluate(values).value_or(0) != 0)
      minimum = std::max(minimum, limit.minimum);
  }
  return minimum;
}

std::optional<std::string> KernelSpec::excluded(
    const CanonicalParameters& params, device::ComputeCapability capability) const {
  const Targets& targets = parts_.targets;
  if (targets.maximum && capability > *targets.maximum)
    return fmt::format("{} is for compute capability {} or lower, not {}", parts_.name,
                       to_string(*targets.maximum), to_string(capability));
  const device::ComputeCapability minimum = minimum_for(params);
  if (capability >= minimum)
    return std::nullopt;
  std::string reason;
  const std::vector<Value> values = values_of(params.values());
  for (const TargetLimit& limit : targets.limits) {
    if (limit.minimum == minimum && limit.when.evaluate(values).value_or(0) != 0)
      reason = fmt::format(" ({})", limit.reason);
  }
  return fmt::format("{} needs compute capability {} or higher{}, not {}", parts_.name,
                     to_string(minimum), reason, to_string(capability));
}

TextValues KernelSpec::text_values(const Parameters& params,
                                   std::span<const Value> values) const {
  TextValues texts;
  texts.emplace("kernel", parts_.name);
  for (const auto& [name, value] : params) texts.emplace(name, value);
  for (std::size_t i = 0; i < parts_.parameters.size(); ++i) {
    for (const std::size_t flag : parts_.slots[i].flags)
      texts.emplace(parts_.symbols.name(flag),
                    boolean_text(values[flag].value_or(0) != 0));
  }
  for (const Constant& constant : parts_.constants)
    texts.emplace(constant.name, constant.text);
  for (const Derived& derived : parts_.derived) {
    const std::int64_t value = values[derived.slot].value_or(0);
    const bool boolean = derived.expression.type() == ValueType::kBoolean;
    texts.emplace(derived.name, boolean ? std::string(boolean_text(value != 0))
                                        : fmt::to_string(value));
  }
  return texts;
}

std::string KernelSpec::text() const {
  std::string out;
  for (const SourceText& source : parts_.sources) {
    if (!out.empty())
      append_line_directive(out, source);
    out += source.raw;
  }
  return out;
}

Result<RenderedSource> KernelSpec::render(const CanonicalParameters& params) const {
  const std::vector<Value> values = values_of(params.values());
  KILN_TRY(check_derived(values));
  const TextValues texts = text_values(params.values(), values);
  const auto put_in = [&](const TemplateText& body) { return body.render(texts); };
  std::string out = "#line 1 \"prelude.cuh\"\n" + *parts_.prelude;
  for (const SourceText& source : parts_.sources) {
    append_line_directive(out, source);
    out += KILN_TRY(
        source.body ? put_in(*source.body)
                    : TemplateText::parse(
                          source.raw, fmt::format("{}/{}", parts_.family, source.name))
                          .and_then(put_in));
  }
  return RenderedSource{std::move(out)};
}

Result<void> KernelSpec::append_arguments(const LaunchArguments& arguments,
                                          std::vector<Value>& values) const {
  for (const auto& [name, value] : arguments) {
    if (std::ranges::find(parts_.arguments, name, &LaunchArgument::name) ==
        parts_.arguments.end()) {
      std::vector<std::string> names;
      for (const LaunchArgument& argument : parts_.arguments)
        names.push_back(argument.name);
      return error(fmt::format("no launch argument '{}'{}; {}", name,
                               did_you_mean(name, names), known_names(names)));
    }
    if (value < 0)
      return error(fmt::format("launch argument '{}' is negative: {}", name, value));
  }
  for (const LaunchArgument& argument : parts_.arguments) {
    const auto given = arguments.find(argument.name);
    if (given == arguments.end() && !argument.default_value)
      return error(fmt::format("launch argument '{}' is missing: {}", argument.name,
                               argument.meaning));
    values.push_back(given == arguments.end() ? argument.default_value
                                              : Value(given->second));
  }
  return {};
}

Result<Geometry> KernelSpec::geometry(const CanonicalParameters& params,
                                      const LaunchArguments& arguments,
                                      std::string_view entry) const {
  return geometry(values_of(params), arguments, entry);
}

Result<Geometry> KernelSpec::geometry(std::vector<Value> values,
                                      const LaunchArguments& arguments,
                                      std::string_view entry) const {
  const auto& names = parts_.entry_points;
  const auto at = entry.empty() ? names.begin() : std::ranges::find(names, entry);
  if (at == names.end())
    return fail(ErrorCode::kNotFound, "{}: no entry point '{}'{}; {}", parts_.name,
                entry, did_you_mean(entry, names), known_names(names));
  KILN_TRY(append_arguments(arguments, values));
  for (const Condition& require : parts_.require) {
    if (KILN_TRY(about(parts_.name, require.expression.evaluate(values))) == 0)
      return error(fmt::format("{} ('{}' does not hold)", require.message,
                               require.expression.text()));
  }
  const EntryGeometry& declared =
      parts_.geometries[static_cast<std::size_t>(at - names.begin())];
  return about(parts_.name, evaluate_geometry(declared, values));
}

}  // namespace kiln::render
