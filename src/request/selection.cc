#include "request/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "util/text.h"
#include "util/try.h"

namespace kiln::request {

namespace {

using KernelPointer = std::shared_ptr<const render::KernelSpec>;

std::string trimmed_word(std::string_view text) {
  return std::string(trimmed(text, " \t"));
}

/// The kernel `name`, or else all kernels of the family `name`.
Result<std::vector<KernelPointer>> kernels_named(const render::TemplateCatalog& catalog,
                                                 const std::string& name) {
  auto kernel = catalog.find(name);
  if (kernel)
    return std::vector<KernelPointer>{*std::move(kernel)};
  std::vector<KernelPointer> family = KILN_TRY(catalog.family(name));
  if (!family.empty())
    return family;
  return tl::unexpected(std::move(kernel).error());
}

/// The default set with `fixed` applied. Leaves out duplicates and variants that a
/// constraint forbids; an error if none is left.
Result<std::vector<TemplateRequest>> variants(const KernelPointer& kernel,
                                              const Parameters& fixed) {
  std::set<Parameters> seen;
  std::vector<TemplateRequest> out;
  std::optional<Error> last;
  for (const render::CanonicalParameters& variant : kernel->default_set()) {
    Parameters params = variant.values();
    for (const auto& [name, value] : fixed) params[name] = value;
    auto canonical = kernel->canonical(params);
    if (!canonical)
      last = std::move(canonical).error();
    else if (seen.insert(canonical->values()).second)
      out.push_back({kernel, *std::move(canonical)});
  }
  if (out.empty() && last)
    return tl::unexpected(*std::move(last));
  return out;
}

}  // namespace

Result<TemplatePattern> parse_template_pattern(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  TemplatePattern out{trimmed_word(text.substr(0, colon)), {}};
  const auto error = [&](std::string_view what) {
    return refuse("template '{}': {}; write NAME or NAME:p=v,q=w", text, what);
  };
  if (out.name.empty())
    return error("it has no name");
  std::string_view rest = text.substr(std::min(colon + 1, text.size()));
  if (rest.empty())
    return out;  // NAME: is NAME
  while (true) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos)
      return error(fmt::format("'{}' has no '='", trimmed_word(part)));
    const std::string name = trimmed_word(part.substr(0, equals));
    if (name.empty())
      return error(fmt::format("'{}' has no parameter name", trimmed_word(part)));
    if (!out.params.emplace(name, trimmed_word(part.substr(equals + 1))).second)
      return error(fmt::format("parameter '{}' is given twice", name));
    if (comma == rest.size())
      return out;
    rest.remove_prefix(comma + 1);
  }
}

std::string format_template(std::string_view name, const Parameters& params) {
  std::string out(name);
  char separator = ':';
  for (const auto& [parameter, value] : params) {
    out += fmt::format("{}{}={}", separator, parameter, value);
    separator = ',';
  }
  return out;
}

void Selection::add(TemplateRequest request) {
  std::string id = format_template(request.kernel->name(), request.params.values());
  if (seen_.insert(std::move(id)).second)
    requests_.push_back(std::move(request));
}

Result<void> Selection::add_all() {
  for (const auto& kernel : KILN_TRY(catalog_.kernels())) {
    for (const auto& params : kernel->default_set()) add({kernel, params});
  }
  return {};
}

Result<void> Selection::add_quick() {
  for (const auto& kernel : KILN_TRY(catalog_.kernels())) {
    for (const auto& params : kernel->quick_set()) add({kernel, params});
  }
  return {};
}

Result<void> Selection::add_template(std::string_view text) {
  const TemplatePattern pattern = KILN_TRY(parse_template_pattern(text));
  const auto kernels = KILN_TRY(kernels_named(catalog_, pattern.name));
  std::vector<TemplateRequest> found;
  for (const KernelPointer& kernel : kernels) {
    auto some = KILN_TRY(variants(kernel, pattern.params));
    std::move(some.begin(), some.end(), std::back_inserter(found));
  }
  for (TemplateRequest& request : found) add(std::move(request));
  return {};
}

}  // namespace kiln::request
