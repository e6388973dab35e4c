#include "request/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "request/program_name.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln::request {

namespace {

constexpr std::size_t kMaxSourceBytes = 32U << 20U;  // with its headers
constexpr std::size_t kMaxListEntries = 4096;        // options, defines, ...
constexpr std::size_t kMaxNames = 65'536;            // name expressions

struct Refusal {
  std::string_view options;  // without leading dashes, separated by a blank
  std::string_view reason;
};

constexpr std::string_view kTarget =
    "the target follows from the device or architecture that the kernel is for";

// Sources: NVRTC documentation, "Supported Compile Options"; the names of nvcc that
// people try.
constexpr std::array kRefusals{
    Refusal{"gpu-architecture arch gpu-code code gencode generate-code", kTarget},
    Refusal{"gen-opt-lto optix-ir", "its output cannot be loaded as a kernel"},
    Refusal{"fdevice-syntax-only", "it gives no image"},
    Refusal{"ptx cubin", "Kiln chooses the kind of image from the target"},
    Refusal{"output-file o time fdevice-time-trace",
            "a compile writes no file beside the image"},
    Refusal{"options-file optf",
            "options from a file escape the key: write out the options"},
};

// About precompiled headers, which Kiln shares among processes by itself. They change
// no image, so they are a wish and no option.
constexpr std::string_view kPrecompiled = "pch";
constexpr std::string_view kPrecompiledWithValue =  // which may be the next entry
    "create-pch use-pch pch-dir pch-verbose pch-messages instantiate-templates-in-pch";

constexpr const char* kRelocatableCode = "--relocatable-device-code=true";

template <typename... Values>
tl::unexpected<Error> invalid(const SourceOptions& source,
                              fmt::format_string<Values...> what, Values&&... values) {
  return refuse("{}: {}", source.file_name,
                fmt::format(what, std::forward<Values>(values)...));
}

bool has_nul(std::string_view text) {
  return text.find('\0') != std::string_view::npos;
}

std::string_view without_dashes(std::string_view option) {
  while (option.starts_with('-')) option.remove_prefix(1);
  return option;
}

/// Without its value, which follows '=', a blank, or is the next option.
std::string_view name_of(std::string_view option) {
  const std::string_view text = without_dashes(option);
  return text.substr(0, text.find_first_of("= "));
}

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    if (next_part(words, " ") == word)
      return true;
  }
  return false;
}

/// Removes the options about precompiled headers; true if there was one.
bool take_precompiled(std::vector<std::string>& options) {
  std::vector<std::string> others;
  for (std::size_t at = 0; at < options.size(); ++at) {
    const std::string& option = options[at];
    const std::string_view name = name_of(option);
    const bool has_value = has_word(kPrecompiledWithValue, name);
    if (!option.starts_with('-') || !(has_value || name == kPrecompiled)) {
      others.push_back(option);
      continue;
    }
    const bool value_follows = has_value && without_dashes(option) == name;
    if (value_follows && at + 1 < options.size() && !options[at + 1].starts_with('-'))
      ++at;
  }
  const bool any = others.size() != options.size();
  options = std::move(others);
  return any;
}

/// What an option makes of a source; with "=false" nothing.
ObjectKind made_by(std::string_view option) {
  if (!option.starts_with('-') || option.ends_with("=false"))
    return ObjectKind::kNone;
  const std::string_view name = name_of(option);
  if (name == "dlto" || name == "dlink-time-opt")
    return ObjectKind::kLtoIr;
  if (name == "rdc" || name == "relocatable-device-code" || name == "dc" ||
      name == "device-c")
    return ObjectKind::kRelocatable;
  return ObjectKind::kNone;
}

/// Takes such options out.
ObjectKind take_relocatable(std::vector<std::string>& options) {
  ObjectKind found = ObjectKind::kNone;
  std::erase_if(options, [&](const std::string& option) {
    const ObjectKind made = made_by(option);
    found = std::max(found, made);
    return made != ObjectKind::kNone;
  });
  return found;
}

Result<void> check_option(const SourceOptions& source, const std::string& option) {
  if (option.empty() || has_nul(option))
    return invalid(source, "an option is empty or holds a NUL");
  if (!option.starts_with('-'))
    return {};  // the value of the option before it, as in "-I" "dir"
  if (without_dashes(option) == "time=-")
    return {};  // into the log, not into a file
  for (const Refusal& refusal : kRefusals) {
    if (has_word(refusal.options, name_of(option)))
      return invalid(source, "option '{}' is refused: {}", option, refusal.reason);
  }
  return {};
}

Result<void> check_sizes(const SourceOptions& source) {
  std::size_t bytes = source.source.size();
  for (const auto& [name, text] : source.headers) bytes += name.size() + text.size();
  if (bytes > kMaxSourceBytes)
    return fail(ErrorCode::kResourceLimit,
                "{}: source and headers are {} bytes, over the limit of {}",
                source.file_name, bytes, kMaxSourceBytes);
  const auto check = [&](std::size_t size, std::size_t most) -> Result<void> {
    if (size > most)
      return fail(ErrorCode::kResourceLimit,
                  "{}: a list of {} entries, over the limit of {}", source.file_name,
                  size, most);
    return {};
  };
  for (const std::size_t size : {source.headers.size(), source.include_dirs.size(),
                                 source.defines.size(), source.options.size()})
    KILN_TRY(check(size, kMaxListEntries));
  return check(source.name_expressions.size(), kMaxNames);
}

/// NVRTC takes C strings: it would stop at a NUL, but the key covers the whole text.
Result<void> check_texts(const SourceOptions& source) {
  if (has_nul(source.source))
    return invalid(source, "the source holds a NUL");
  const std::string own =
      source.as_nvrtc ? source.file_name : program_name(source.file_name);
  for (const auto& [name, text] : source.headers) {
    if (name.empty() || has_nul(name) || has_nul(text))
      return invalid(source, "the name or text of header '{}' is empty or holds a NUL",
                     name);
    if (name == own)
      return invalid(source,
                     "header '{}' has the name of the source "
                     "itself, and NVRTC would include the source",
                     name);
  }
  for (const auto& dir : source.include_dirs) {
    if (dir.empty() || has_nul(dir.native()))
      return invalid(source, "an include directory is empty or holds a NUL");
  }
  for (const std::string& define : source.defines) {
    const bool named = !define.empty() && define[0] != '=' && define[0] != '-';
    if (!named || has_nul(define))
      return invalid(source, "define '{}' must be NAME or NAME=VALUE", define);
  }
  for (const std::string& name : source.name_expressions) {
    if (name.empty() || has_nul(name))
      return invalid(source, "a name expression is empty or holds a NUL");
  }
  return {};
}

Result<SourceRequest> resolve_as_nvrtc(SourceOptions source) {
  const bool is_default = source.target == kDefaultTarget;
  if (!source.include_dirs.empty() || !source.defines.empty() ||
      !(source.target.empty() || is_default))
    return invalid(source,
                   "as_nvrtc takes include folders, macros and the architecture as "
                   "NVRTC does, among the options");
  if (has_nul(source.file_name) || std::ranges::any_of(source.options, has_nul))
    return invalid(source, "its name or an option holds a NUL");
  auto options = read_nvrtc_options(source.options);
  if (!options)
    return invalid(source, "{}", options.error().message);
  if (is_default && options->target)
    return invalid(source, "an option names the architecture, and target is 'default'");
  SourceRequest request{std::move(source), options->target};
  request.as_nvrtc = std::make_shared<const NvrtcOptions>(*std::move(options));
  return request;
}

}  // namespace

Result<SourceRequest> resolve_source(SourceOptions source) {
  KILN_TRY(check_sizes(source));
  KILN_TRY(check_texts(source));
  if (source.as_nvrtc)
    return resolve_as_nvrtc(std::move(source));
  if (!source.toolchain.empty())
    return invalid(source, "only as_nvrtc has a toolchain of its own");
  const bool precompile = take_precompiled(source.options);
  for (const std::string& option : source.options)
    KILN_TRY(check_option(source, option));
  std::optional<device::Target> target;
  if (!source.target.empty()) {
    auto parsed = device::parse_target(source.target);
    if (!parsed)
      return invalid(source, "target: {}", parsed.error().message);
    target = *parsed;
  }
  return SourceRequest{std::move(source), target, ObjectKind::kNone, precompile};
}

namespace {

Result<void> check_link(const Request& request) {
  if (request.sources().empty())
    return refuse("a request without a source");
  const auto& [files, options] = request.link();
  if (request.sources().size() > kMaxListEntries || files.size() > kMaxListEntries ||
      options.size() > kMaxListEntries)
    return fail(ErrorCode::kResourceLimit, "{}: a link of more than {} parts",
                request.name(), kMaxListEntries);
  for (const std::string& option : options) {
    const std::string_view name = name_of(option);
    if (!option.starts_with('-') || has_nul(option))
      return invalid(request.source(), "link option '{}' must begin with '-'", option);
    if (name == "arch" || name == "ptx")
      return invalid(request.source(), "link option '{}' is refused: {}", option,
                     kTarget);
  }
  for (const auto& file : files) {
    if (file.empty() || has_nul(file.native()))
      return invalid(request.source(), "a file to link is empty or holds a NUL");
  }
  return {};
}

/// What is linked is relocatable, whether it says so or not.
Result<ResolvedRequest> resolve_sources(const Request& request) {
  KILN_TRY(check_link(request));
  LinkRequest link{{}, request.link()};
  bool is_linked = request.sources().size() > 1 || !link.link.files.empty() ||
                   !link.link.options.empty();
  for (const SourceOptions& given : request.sources()) {
    SourceRequest object = KILN_TRY(resolve_source(given));
    if (!given.as_nvrtc)
      object.object = take_relocatable(object.source.options);
    is_linked = is_linked || object.object != ObjectKind::kNone;
    if (given.as_nvrtc && is_linked)
      return invalid(given, "as_nvrtc is one source, and nothing is linked");
    link.objects.push_back(std::move(object));
  }
  if (!is_linked)
    return ResolvedRequest(std::move(link.objects.front()));
  for (SourceRequest& object : link.objects) {
    if (object.object == ObjectKind::kLtoIr)
      continue;
    object.object = ObjectKind::kRelocatable;
    object.source.options.emplace_back(kRelocatableCode);
  }
  return ResolvedRequest(std::move(link));
}

}  // namespace

Result<ResolvedRequest> resolve(const Request& request,
                                const render::TemplateCatalog& catalog) {
  if (!request.is_template())
    return resolve_sources(request);
  auto kernel = KILN_TRY(catalog.find(request.name()));
  auto params = KILN_TRY(kernel->canonical(request.parameters()));
  return ResolvedRequest(TemplateRequest{std::move(kernel), std::move(params)});
}

}  // namespace kiln::request
