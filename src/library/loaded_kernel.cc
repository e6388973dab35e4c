#include "library/loaded_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "device/cubin.h"
#include "library/parameter_kinds.h"
#include "util/demangle.h"
#include "util/no_cancellation.h"
#include "util/try.h"

namespace kiln {
namespace {

std::optional<request::TemplateRequest> template_of(const KeyedRequest& request) {
  const request::TemplateRequest* wanted = request.request.as_template();
  return wanted == nullptr ? std::nullopt : std::optional(*wanted);
}

std::string without_spaces(std::string_view text) {
  std::string all(text);
  std::erase(all, ' ');
  return all;
}

}  // namespace

Result<std::shared_ptr<const LoadedKernel>> LoadedKernel::load(
    const KeyedRequest& request, std::shared_ptr<const cache::StoredObject> object,
    const std::shared_ptr<const device::PrimaryContext>& context) {
  const cache::Metadata metadata = KILN_TRY(object->metadata());
  // For a source this loads all kernels: extern "C" ones need no name expression.
  device::Image image{.bytes = object->payload(),
                      .target = request.target,
                      .toolkit = request.toolchain->toolchain.facts.version,
                      .label = request.request.label(),
                      .key = request.key.hex(),
                      .entry_points = {}};
  if (request.request.as_template() != nullptr) {
    for (const cache::EntryPoint& name : metadata.entry_points)
      image.entry_points.push_back(name.lowered);
  }
  auto module = KILN_TRY(device::LoadedModule::load(context, image));
  return std::shared_ptr<const LoadedKernel>(
      new LoadedKernel(request, std::move(object), metadata, std::move(module)),
      [](const LoadedKernel* last) {  // it unloads, in whatever thread of the host
        const NoCancellation uncancelled;
        delete last;
      });
}

LoadedKernel::LoadedKernel(const KeyedRequest& request,
                           std::shared_ptr<const cache::StoredObject> object,
                           const cache::Metadata& metadata,
                           std::shared_ptr<const device::LoadedModule> module)
    : label_(request.request.label()),
      key_(request.key.hex()),
      template_(template_of(request)),
      values_(template_ ? template_->kernel->values_of(template_->params)
                        : std::vector<render::Value>()),
      object_(std::move(object)),
      names_(metadata.entry_points),
      variables_(metadata.variables),
      module_(std::move(module)),
      entry_(choose_entry(request)),
      kinds_(module_->functions().size()) {}

const std::vector<ArgumentKind>& LoadedKernel::kinds(std::size_t index) const {
  Kinds& kinds = kinds_[index];
  std::call_once(kinds.asked, [&] {
    const auto& sizes = function(index).parameters();
    const auto ptx = [&] {
      return object_->kind() == cache::Kind::kPtx ? std::string(as_text(image()))
                                                  : object_->ptx().value_or("");
    };
    if (sizes)
      kinds.found = parameter_kinds(function(index).name(), sizes->size(), ptx);
  });
  return kinds.found;
}

std::vector<std::string> LoadedKernel::entry_names() const {
  std::vector<std::string> names;
  for (const device::Function& function : module_->functions()) {
    const auto named =
        std::ranges::find(names_, function.name(), &cache::EntryPoint::lowered);
    names.push_back(named == names_.end() ? function.name() : named->name);
  }
  return names;
}

std::size_t LoadedKernel::choose_entry(const KeyedRequest& request) const {
  // A template declares which entry point is first. A source has a default only if it
  // names exactly one kernel, or contains exactly one.
  const auto is_named = [&](const cache::EntryPoint& entry) {
    const auto names = [&](const PreparedRequest& of) {
      const auto& source = std::get<request::SourceRequest>(of.resolved());
      const auto& expressions = source.source.name_expressions;
      return std::ranges::find(expressions, entry.name) != expressions.end();
    };
    const auto& objects = request.request.objects();
    return objects.empty() ? names(request.request)
                           : std::ranges::any_of(objects, names);
  };
  if (template_ ? !names_.empty() : std::ranges::count_if(names_, is_named) == 1)
    return find(names_.front().lowered).value_or(Kernel::kNoEntry);
  return module_->functions().size() == 1 ? 0 : Kernel::kNoEntry;
}

std::optional<std::size_t> LoadedKernel::find(std::string_view name) const {
  auto named = std::find_if(
      names_.begin(), names_.end(),
      [name](const cache::EntryPoint& known) { return known.name == name; });
  if (named == names_.end()) {
    const std::string wanted = without_spaces(name);
    named = std::ranges::find_if(names_, [&](const cache::EntryPoint& known) {
      return without_spaces(known.name) == wanted;
    });
  }
  const std::string_view lowered = named == names_.end() ? name : named->lowered;
  const auto& functions = module_->functions();
  const auto found = std::find_if(
      functions.begin(), functions.end(),
      [lowered](const device::Function& known) { return known.name() == lowered; });
  if (found != functions.end())
    return static_cast<std::size_t>(found - functions.begin());
  // A kernel that no name expression names has only its mangled name.
  std::optional<std::size_t> only;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (source_name(functions[i].name()) != name)
      continue;
    if (only)
      return std::nullopt;  // overloads
    only = i;
  }
  return only;
}

Result<GlobalVariable> LoadedKernel::global(std::string_view name) const {
  const auto named =
      std::ranges::find_if(variables_, [name](const cache::EntryPoint& known) {
        std::string_view expression = known.name;
        if (expression != name && expression.starts_with('&'))
          expression.remove_prefix(1);
        return expression == name;
      });
  const std::string lowered(named == variables_.end() ? name : named->lowered);
  if (const auto found = KILN_TRY(module_->variable(lowered)))
    return GlobalVariable{.address = found->address, .bytes = found->bytes};
  return fail(ErrorCode::kNotFound, "{} has no variable '{}'; it has {}", label_, name,
              variable_names());
}

std::string LoadedKernel::variable_names() const {
  constexpr std::size_t kMost = 20;
  std::vector<std::string> names;
  for (const cache::EntryPoint& variable : variables_) names.push_back(variable.name);
  const auto cubin = device::read_cubin(object_->payload());
  // The text of PTX declares them in many forms: of those only the named are listed.
  for (const std::string& name :
       cubin ? cubin->variables : std::vector<std::string>()) {
    if (std::ranges::find(variables_, name, &cache::EntryPoint::lowered) ==
        variables_.end())
      names.push_back(name);
  }
  if (names.empty())
    return "none";
  const std::size_t shown = std::min(kMost, names.size());
  std::string text = fmt::format("{}", fmt::join(std::span(names).first(shown), ", "));
  if (shown < names.size())
    text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

Result<Geometry> LoadedKernel::geometry(const LaunchArguments& arguments,
                                        const std::string& entry) const {
  if (!template_) {
    return refuse(
        "{} is a source, which declares no geometry: give launch() a kiln::Geometry",
        label_);
  }
  return template_->kernel->geometry(values_, arguments, entry);
}

}  // namespace kiln
