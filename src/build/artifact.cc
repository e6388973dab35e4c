#include "build/artifact.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/plan.h"
#include "cache/unix_time.h"
#include "codec/named_files.h"
#include "device/compatibility.h"
#include "device/cubin.h"
#include "key/key.h"
#include "kiln/version.h"
#include "request/source_kernels.h"
#include "util/try.h"

namespace kiln {
namespace {

/// What an image defines.
struct Defined {
  std::vector<std::string> kernels;
  std::vector<std::string> variables;                    // of a cubin
  std::function<bool(const std::string&)> has_variable;  // by lowered name
};

Result<Defined> defined_in(const KeyedRequest& request, const Bytes& image) {
  Defined defined;
  std::vector<device::EntryPoint> kernels;
  if (request.target.kind == device::ImageKind::kLtoIr) {
    defined.has_variable = [](const std::string&) { return false; };
  } else if (request.target.kind == device::ImageKind::kPtx) {
    kernels = KILN_TRY(device::read_ptx(image)).entry_points;
    // The text declares them in many forms; the driver finds them by name.
    defined.has_variable = [text = as_text(image)](const std::string& name) {
      return text.find(name) != std::string_view::npos;
    };
  } else {
    device::CubinInfo info = KILN_TRY(device::read_cubin(image));
    kernels = std::move(info.entry_points);
    defined.variables = info.variables;
    defined.has_variable = [variables =
                                std::set(info.variables.begin(), info.variables.end())](
                               const auto& name) { return variables.contains(name); };
  }
  for (device::EntryPoint& kernel : kernels)
    defined.kernels.push_back(std::move(kernel.name));
  return defined;
}

struct Names {
  std::vector<cache::EntryPoint> entry_points;
  std::vector<cache::EntryPoint> variables;
};

/// A template's entry points are its extern "C" functions. A source's are those that
/// name expressions name, unless they name a variable, and then all other kernels in
/// the image. A name expression that matches nothing counts as an entry point, so that
/// the check reports it; in LTO-IR, in which none can be found, the link does.
Result<Names> names_in(const KeyedRequest& request,
                       const compile::CompileOutput& output) {
  Names names;
  if (const request::TemplateRequest* wanted = request.request.as_template()) {
    for (const std::string& name : wanted->kernel->entry_points())
      names.entry_points.push_back({name, name});
    return names;
  }
  const bool as_nvrtc = is_as_nvrtc(request);
  const Defined defined = KILN_TRY(defined_in(request, output.image));
  const std::set<std::string_view> kernels(defined.kernels.begin(),
                                           defined.kernels.end());
  std::set<std::string_view> named;
  for (const compile::LoweredName& name : output.lowered_names) {
    const bool is_kernel = kernels.contains(name.lowered);
    (!is_kernel && (as_nvrtc || defined.has_variable(name.lowered))
         ? names.variables
         : names.entry_points)
        .push_back({name.expression, name.lowered});
    named.insert(name.lowered);
  }
  for (const std::string& name : defined.kernels) {
    if (!named.contains(name))
      names.entry_points.push_back({name, name});
  }
  // A module of variables, such as a table that a program fills.
  const auto* const source = request.request.as_source();
  if (names.entry_points.empty() && names.variables.empty() && !as_nvrtc &&
      source != nullptr && request::kernels_in(source->source.source).empty()) {
    for (const std::string& name : defined.variables) {
      if (!name.starts_with('$'))  // a text of printf()
        names.variables.push_back({name, name});
    }
  }
  return names;
}

/// True for what is only linked, and so needs no kernel, and for what is as NVRTC's.
bool is_object(const KeyedRequest& request) {
  const auto* const source = request.request.as_source();
  return request.target.kind == device::ImageKind::kLtoIr || is_as_nvrtc(request) ||
         (source != nullptr && source->object != request::ObjectKind::kNone);
}

/// The maximum of each resource over all entry points; occupancy depends on them.
void describe_resources(const compile::CompileOutput& output,
                        cache::Metadata& metadata) {
  for (const compile::ResourceUse& use : output.resources) {
    metadata.registers = std::max(metadata.registers, use.registers);
    metadata.shared_bytes = std::max(metadata.shared_bytes, use.static_shared_bytes);
    metadata.spill_bytes =
        std::max(metadata.spill_bytes, use.spill_store_bytes + use.spill_load_bytes);
  }
}

/// nvJitLink tells fewer of them in its log.
void describe_resources(const device::CubinInfo& info, cache::Metadata& metadata) {
  for (const device::EntryPoint& entry : info.entry_points) {
    metadata.registers =
        std::max<std::uint64_t>(metadata.registers, entry.registers.value_or(0));
    metadata.shared_bytes = std::max(metadata.shared_bytes, entry.static_shared_bytes);
  }
}

Result<cache::Metadata> metadata_of(const KeyedRequest& request,
                                    const compile::CompileOutput& output) {
  const device::Toolchain& used = request.toolchain->toolchain;
  cache::Metadata metadata;
  auto& [template_name, params, arch, toolchain, toolchain_build_ids, producer,
         created_ns, compile_ms, registers, shared_bytes, spill_bytes, entry_points,
         variables, min_driver, program, program_in] = metadata;
  if (const request::TemplateRequest* wanted = request.request.as_template()) {
    template_name = wanted->kernel->name();
    for (const auto& [name, value] : wanted->params.values())
      params.push_back({name, value});
  } else {
    program = request.request.file();
  }
  arch = arch_name(request.target);
  toolchain = used.name();
  toolchain_build_ids = {used.id.nvrtc, used.id.builtins};
  if (request.linker != nullptr)
    toolchain_build_ids.push_back(request.linker->id.nvjitlink);
  producer = version();
  created_ns = cache::unix_now_ns();
  compile_ms = static_cast<std::uint64_t>(output.nvrtc_time.count());
  describe_resources(output, metadata);
  // The log has few of nvJitLink, of a program's own compile only with an option, and
  // none of a compile with many names.
  if (request.linker != nullptr ||
      (output.resources.empty() && request.target.kind == device::ImageKind::kCubin))
    describe_resources(KILN_TRY(device::read_cubin(output.image)), metadata);
  Names names = KILN_TRY(names_in(request, output));
  entry_points = std::move(names.entry_points);
  variables = std::move(names.variables);
  min_driver = to_string(device::min_driver(request.target.kind, used.facts.version));
  return metadata;
}

cache::Kind kind_of(device::ImageKind kind) {
  switch (kind) {
    case device::ImageKind::kCubin:
      return cache::Kind::kCubin;
    case device::ImageKind::kPtx:
      return cache::Kind::kPtx;
    case device::ImageKind::kLtoIr:
      return cache::Kind::kLtoIr;
  }
  return cache::Kind::kCubin;
}

/// The target that a kernel's object states: "sm_90a" or "compute_90". Errors:
/// kCorrupt.
Result<device::Target> target_of(const cache::StoredObject& object) {
  const auto target = device::parse_target(object.target());
  if (!target)
    return fail(ErrorCode::kCorrupt, "'{}' is no target of a kernel", object.target());
  if (kind_of(target->kind) != object.kind() || to_string(*target) != object.target())
    return fail(ErrorCode::kCorrupt, "a {} object states the target '{}'",
                to_string(object.kind()), object.target());
  return *target;
}

/// As PTX writes a string.
std::string decimals(std::string_view text) {
  return fmt::format(
      "{}", fmt::join(std::span(reinterpret_cast<const unsigned char*>(text.data()),
                                text.size()),
                      ", "));
}

Result<void> check_stored_plan(const cache::StoredObject& object) {
  const auto plan = KILN_TRY(attention::decode_plan(object.payload()));
  const auto capability = KILN_TRY(attention::bound_capability(plan));
  const device::Target target{{capability}, device::ImageKind::kCubin};
  if (to_string(target) != object.target())
    return fail(ErrorCode::kCorrupt, "an execution plan for {} states the target '{}'",
                to_string(target), object.target());
  return attention::check_kernels(plan);
}

}  // namespace

Result<void> check_output(const KeyedRequest& request,
                          const compile::CompileOutput& output) {
  const auto unusable = [&](std::string_view why) {
    return fail(
        ErrorCode::kCompileFailed,
        "{} reported success for {} ({}), but its output cannot be used: {}; nothing "
        "was stored",
        request.linker != nullptr ? "nvJitLink" : request.toolchain->toolchain.name(),
        request.request.label(), to_string(request.target), why);
  };
  const Names names = KILN_TRY(names_in(request, output));
  std::vector<std::string_view> expected;
  for (const cache::EntryPoint& entry : names.entry_points)
    expected.push_back(entry.lowered);
  if (expected.empty() && names.variables.empty() && !is_object(request)) {
    return unusable(
        "it has no kernel and no variable; a kernel is a __global__ function, and a "
        "template of a kernel or of a variable needs a name expression");
  }
  const auto checked = device::check_image(output.image, request.target, expected);
  return checked ? Result<void>() : unusable(checked.error().message);
}

std::optional<Error> other_toolchain(const KeyedRequest& request,
                                     const compile::CompileOutput& output) {
  const device::Toolchain& keyed = request.toolchain->toolchain;
  if (request.linker != nullptr) {
    if (output.nvrtc.build_id == request.linker->id.nvjitlink)
      return std::nullopt;
    return Error{ErrorCode::kUnavailable,
                 fmt::format("{} is not stored: the worker loaded {} with build id {}, "
                             "where {} was expected; look at LD_LIBRARY_PATH",
                             request.request.label(), output.nvrtc.path.native(),
                             output.nvrtc.build_id, request.linker->id.nvjitlink)};
  }
  const auto differs = [](const compile::LoadedLibrary& loaded, const std::string& id) {
    return loaded.build_id != id;
  };
  const bool nvrtc = differs(output.nvrtc, keyed.id.nvrtc);
  if (!nvrtc && !differs(output.builtins, keyed.id.builtins))
    return std::nullopt;
  const compile::LoadedLibrary& loaded = nvrtc ? output.nvrtc : output.builtins;
  return Error{
      ErrorCode::kUnavailable,
      fmt::format("{} is not stored: the compiler loaded {} with build id {}, where {} "
                  "was expected; look at LD_LIBRARY_PATH, or set KILN_NVRTC",
                  request.request.label(), loaded.path.native(), loaded.build_id,
                  nvrtc ? keyed.id.nvrtc : keyed.id.builtins)};
}

Result<cache::StoredObject> make_object(const KeyedRequest& request,
                                        const Fields& preimage, std::string_view source,
                                        const compile::CompileOutput& output) {
  const std::string target = to_string(request.target);
  auto metadata = KILN_TRY(metadata_of(request, output));
  if (!request.has_name) {
    const std::string& name = RequestKeys::name_of_program(request.request);
    if (is_named_in_image(as_text(output.image), name) ||
        is_named_in_image(output.ptx, name))
      metadata.program_in = "image";
    else if (!renamed_log(output.log, name, name))
      metadata.program_in = "log";
  }
  cache::NewObject object{.kind = kind_of(request.target.kind),
                          .target = target,
                          .metadata = std::move(metadata),
                          .preimage = preimage,
                          .payload = output.image,
                          .log = output.log,
                          .source = source,
                          .ptx = output.ptx};
  return cache::StoredObject::make(object);
}

bool is_named_in_image(std::string_view image, std::string_view name) {
  const std::size_t folder = name.rfind('/') + 1;
  const std::string_view last = folder < name.size() ? name.substr(folder) : name;
  return std::ranges::any_of(
      std::initializer_list<std::string>{"_INTERNAL_", "_GLOBAL__N", std::string(last),
                                         decimals(last)},
      [&](const std::string& sign) { return image.find(sign) != image.npos; });
}

std::optional<std::string> renamed_log(std::string_view log, std::string_view was,
                                       std::string_view name) {
  std::string renamed;
  std::size_t copied = 0;
  for (std::size_t at = log.find(was); at != log.npos; at = log.find(was, copied)) {
    const bool begins_line = at == 0 || log[at - 1] == '\n';
    if (!begins_line || !log.substr(at + was.size()).starts_with('('))
      return std::nullopt;
    renamed.append(log.substr(copied, at - copied)).append(name);
    copied = at + was.size();
  }
  return renamed.append(log.substr(copied));
}

bool is_failure_of(std::string_view log, std::string_view name) {
  return log.find(fmt::format("in the compilation of \"{}\".", name)) != log.npos;
}

Result<bool> may_use(const KeyedRequest& request, const cache::StoredObject& object) {
  if (request.has_name)
    return true;
  const cache::Metadata metadata = KILN_TRY(object.metadata());
  return !metadata.program_in ||
         metadata.program == RequestKeys::name_of_program(request.request);
}

Result<std::string> log_for(const KeyedRequest& request,
                            const cache::StoredObject& object) {
  std::string log = KILN_TRY(object.log());
  if (log.empty() || log == kLogLeftOut || request.has_name)
    return log;
  const std::optional<std::string> was = KILN_TRY(object.metadata()).program;
  const std::string& name = RequestKeys::name_of_program(request.request);
  if (!was || *was == name)
    return log;
  return renamed_log(log, *was, name).value_or(log);
}

Result<std::optional<cache::StoredObject>> without_source(
    const cache::StoredObject& object) {
  const Fields preimage = KILN_TRY(object.preimage());
  if (object.kind() != cache::Kind::kFiles && !key::is_as_nvrtc(preimage))
    return std::nullopt;
  const std::string log = KILN_TRY(object.log());
  if ((log.empty() || log == kLogLeftOut) && KILN_TRY(object.source()).empty())
    return std::nullopt;
  const std::string ptx = KILN_TRY(object.ptx());
  const auto metadata = KILN_TRY(object.metadata());
  return KILN_TRY(cache::StoredObject::make({.kind = object.kind(),
                                             .target = object.target(),
                                             .metadata = metadata,
                                             .preimage = preimage,
                                             .payload = object.payload(),
                                             .log = log.empty() ? "" : kLogLeftOut,
                                             .source = {},
                                             .ptx = ptx}));
}

Result<void> check_stored_payload(const cache::StoredObject& object) {
  if (object.kind() == cache::Kind::kPlan)
    return check_stored_plan(object);
  if (object.kind() == cache::Kind::kFiles) {
    auto files = KILN_TRY(decode_files(object.payload()));
    const std::string source = KILN_TRY(object.source());
    const auto sources = KILN_TRY(decode_files(as_bytes(source)));
    files.insert(files.end(), sources.begin(), sources.end());
    return check_files(std::move(files));
  }
  const device::Target target = KILN_TRY(target_of(object));
  return device::check_image(object.payload(), target,
                             KILN_TRY(object.lowered_names()));
}

}  // namespace kiln
