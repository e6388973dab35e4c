#include "build/request_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "request/program_name.h"
#include "request/selection.h"
#include "request/source_kernels.h"
#include "util/posix_error.h"
#include "util/read_file.h"
#include "util/single_flight.h"
#include "util/try.h"

namespace kiln {
namespace {

// compile/ and key/ do not know each other, but a key must name what is compiled.
static_assert(compile::kProgramName == key::kProgramName);

/// Part of each key, as all options are.
constexpr const char* kStandard = "--std=c++17";

key::BuildContext build_context(device::Target target,
                                const device::Toolchain& toolchain) {
  return {.kind = target.kind,
          .target = to_string(target),
          .toolchain = {toolchain.id.nvrtc, toolchain.id.builtins}};
}

void append(std::vector<std::string>& all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

/// Without a seed NVRTC puts its process id and a random number into names of internal
/// linkage (anonymous namespaces; variables of CUB and cooperative groups). The seed is
/// not the key, so that these names are the same on all architectures.
constexpr const char* kSeed = "--frandom-seed=kiln";
constexpr device::CudaVersion kFirstWithSeed{12, 9};  // 12.8 does not know the option

/// What code for nvcc takes for granted, as much as standard headers: functions without
/// annotation, and __int128. A source that compiles without these options compiles to
/// the same bytes with them, and giving one twice is no error.
constexpr std::array kWithStandardHeaders = {"--device-as-default-execution-space",
                                             "--device-int128"};

/// Keeps the standard headers from a source, as GCC's and clang's. NVRTC does not know
/// it.
constexpr const char* kNoStandardHeaders = "-nostdinc++";

/// True for "-std=c++20", "--std=c++20", and the same with a blank or as two options.
bool is_standard(const std::string& option) {
  const std::string_view name =
      std::string_view(option).substr(0, option.find_first_of("= "));
  return name == "-std" || name == "--std";
}

/// Kiln's options, then the user's: of two seeds NVRTC takes the last. It warns about a
/// second --std.
std::vector<std::string> all_options(const std::vector<std::string>& given,
                                     const device::Toolchain& toolchain,
                                     const key::HeaderSnapshot& headers) {
  std::vector<std::string> all;
  if (toolchain.facts.version >= kFirstWithSeed)
    all.emplace_back(kSeed);
  if (std::none_of(given.begin(), given.end(), is_standard))
    all.emplace_back(kStandard);
  if (!headers.standard_headers.empty())
    all.insert(all.end(), kWithStandardHeaders.begin(), kWithStandardHeaders.end());
  append(all, given);
  return all;
}

/// Everything that determines a template's build, except its parameters and headers.
/// Both its key and its job are made from this.
key::TemplateKeyInput complete_input(const render::KernelSpec& kernel,
                                     const device::Toolchain& toolchain,
                                     const key::HeaderSnapshot& headers) {
  const render::KernelDigests& digests = kernel.digests();
  return {
      .kernel = kernel.name(),
      .digests = {digests.text, digests.kernel_toml, digests.prelude, digests.renderer},
      // Without headers a template has no names of internal linkage.
      .options = kernel.has_include() ? all_options({}, toolchain, headers)
                                      : std::vector<std::string>{kStandard},
      .name_expressions = {}};
}

/// The same for a source, except its headers on disk. `given` is normalized.
key::SourceKeyInput complete_input(const key::SourceKeyInput& given,
                                   const device::Toolchain& toolchain,
                                   const key::HeaderSnapshot& headers) {
  key::SourceKeyInput input = given;
  if (given.form == key::SourceForm::kKiln)
    input.options = all_options(given.options, toolchain, headers);
  return input;
}

/// The kernel's name is in the key already.
std::string program_name(const render::KernelSpec& kernel) {
  return kernel.name() + ".cu";
}

/// What is searched behind the source's own folders.
std::span<const std::filesystem::path> last_folders(
    const key::SourceKeyInput& input, const device::Toolchain& toolchain) {
  if (input.form == key::SourceForm::kNvrtc)
    return {};
  return toolchain.include_roots;
}

/// Where a template finds headers before the toolkit: beside its text.
std::vector<std::filesystem::path> include_dirs_of(const render::KernelSpec& kernel) {
  return {kernel.folder()};
}

key::SourceKeyInput scan_input(const render::KernelSpec& kernel) {
  return {.source = kernel.text(),
          .options = {},
          .macros = {},
          .include_dirs = include_dirs_of(kernel),
          .memory_headers = {},
          .name_expressions = {},
          .program_name = program_name(kernel)};
}

std::vector<key::Parameter> key_parameters(const render::CanonicalParameters& params) {
  std::vector<key::Parameter> parameters;
  parameters.reserve(params.values().size());
  for (const auto& [name, value] : params.values()) parameters.push_back({name, value});
  return parameters;
}

key::SourceKeyInput key_input(const SourceOptions& given) {
  // The request's target, by now, is what `target` asks for.
  const auto& [source, file_name, headers, include_dirs, defines, options, names,
               target, as_nvrtc, working_dir, toolchain] = given;
  key::SourceKeyInput input{.source = source,
                            .options = options,
                            .macros = {},
                            .include_dirs = include_dirs,
                            .memory_headers = {},
                            .name_expressions = names,
                            .program_name = request::program_name(file_name)};
  for (const std::string& define : defines)
    input.macros.push_back({key::MacroAction::kDefine, define});
  for (const auto& [name, text] : headers) input.memory_headers.push_back({name, text});
  return input;
}

/// The same as NVRTC itself reads it.
Result<key::SourceKeyInput> key_input(const SourceOptions& given,
                                      const request::NvrtcOptions& options) {
  key::SourceKeyInput input = key_input(given);
  input.form = key::SourceForm::kNvrtc;
  input.program_name = given.file_name;
  if (input.program_name.empty())
    input.program_name = "default_program";  // as NVRTC does
  input.working_directory = KILN_TRY(working_directory(given.working_dir)).native();
  if (!input.working_directory.ends_with('/'))
    input.working_directory += '/';
  input.options = options.others;
  if (given.target == request::kDefaultTarget)  // no option of NVRTC's
    input.options.insert(input.options.begin(), "--gpu-architecture=default");
  for (const request::NvrtcMacro& macro : options.macros)
    input.macros.push_back(
        {macro.is_defined ? key::MacroAction::kDefine : key::MacroAction::kUndefine,
         macro.text});
  for (const std::string& folder : options.include_dirs)
    input.include_dirs.push_back(input.working_directory /
                                 std::filesystem::path(folder));
  if (options.has_paths) {
    input.paths = options.include_dirs;
    input.paths.push_back(input.working_directory);
  }
  return input;
}

constexpr std::uint64_t kLargestLinkFile = 256U << 20U;

Result<std::vector<compile::LinkInput>> read_files(
    const std::vector<std::filesystem::path>& paths) {
  std::vector<compile::LinkInput> files;
  for (const auto& path : paths) {
    auto bytes = KILN_TRY(read_file(path, kLargestLinkFile));
    if (!bytes)
      return refuse("there is no file {} to link", path.native());
    files.push_back({path.filename().native(), *std::move(bytes)});
  }
  return files;
}

std::vector<Digest> digests_of(const std::vector<compile::LinkInput>& files) {
  std::vector<Digest> digests;
  for (const compile::LinkInput& file : files)
    digests.push_back(Digest::of(file.bytes));
  return digests;
}

/// What is compiled for a link to `target`.
device::Target object_target(const PreparedRequest& object, device::Target target) {
  if (object.as_source()->object == request::ObjectKind::kLtoIr)
    target.kind = device::ImageKind::kLtoIr;
  return target;
}

/// Everything that determines a link. Both its key and its job are made from this.
key::LinkKeyInput link_input(const KeyedRequest& request, std::vector<Digest> files) {
  key::LinkKeyInput input{.target = to_string(request.target),
                          .options = {"-arch=" + to_string(request.target)},
                          .objects = {},
                          .files = std::move(files),
                          .linker = request.linker->id.nvjitlink,
                          .device_runtime = request.linker->id.device_runtime};
  for (const KeyedRequest& object : request.objects) {
    input.objects.push_back(object.key);
    if (object.target.kind == device::ImageKind::kLtoIr && input.options.size() == 1)
      input.options.emplace_back("-lto");
  }
  append(input.options,
         std::get<request::LinkRequest>(request.request.resolved()).link.options);
  return input;
}

/// True if the source has the program's name in it, for a #line, or a header was found
/// in the name's folder: __FILE__ and messages then begin with that folder.
bool shows_name(const key::SourceKeyInput& input, const key::HeaderSnapshot& headers) {
  const std::string& name = input.program_name;
  std::string folder = name.substr(0, name.rfind('/') + 1);
  if (!folder.empty() && !folder.starts_with('/'))
    folder.insert(0, input.working_directory);
  return input.source.find(name) != input.source.npos ||
         (!folder.empty() &&
          std::ranges::any_of(headers.files, [&](const key::HeaderFile& file) {
            return file.path.native().starts_with(folder);
          }));
}

void append_folders(std::vector<std::string>& options,
                    const std::vector<std::filesystem::path>& folders) {
  for (const auto& folder : folders) options.push_back("-I" + folder.native());
}

/// What NVRTC searches behind the request's own folders.
void append_last_folders(std::vector<std::string>& options,
                         const device::Toolchain& toolchain,
                         const key::HeaderSnapshot& headers) {
  append_folders(options, toolchain.include_roots);
  if (!headers.standard_headers.empty())
    append_folders(options, {headers.standard_headers});
}

bool has_libcudacxx(const std::vector<std::filesystem::path>& folders) {
  return std::any_of(folders.begin(), folders.end(), [](const auto& folder) {
    std::error_code error;  // a folder that cannot be read has none
    return std::filesystem::is_directory(folder / "cuda/std", error);
  });
}

}  // namespace

Result<std::filesystem::path> working_directory(const std::filesystem::path& given) {
  std::error_code error;
  std::filesystem::path found;
  const char* const shells = std::getenv("PWD");  // NOLINT(concurrency-mt-unsafe)
  if (!given.empty())
    found = std::filesystem::absolute(given, error);
  else if (shells != nullptr && *shells == '/' &&
           std::filesystem::equivalent(shells, ".", error))
    found = shells;
  else
    found = std::filesystem::current_path(error);
  if (error)
    return posix_error("getcwd", given, error.value());
  return found;
}

struct PreparedRequest::Content {
  Content(request::ResolvedRequest request, std::optional<key::SourceKeyInput> input,
          std::vector<PreparedRequest> parts, std::vector<compile::LinkInput> read)
      : resolved(std::move(request)),
        source(std::move(input)),
        objects(std::move(parts)),
        files(std::move(read)),
        file_digests(digests_of(files)) {}

  const request::ResolvedRequest resolved;
  const std::optional<key::SourceKeyInput> source;  // only for a source; normalized
  const std::vector<PreparedRequest> objects;       // only for a link
  const std::vector<compile::LinkInput> files;      // only for a link
  const std::vector<Digest> file_digests;

  /// Found once, for those who are told of the request.
  const std::vector<std::string>& kernels() {
    std::call_once(kernels_found, [&] {
      const auto* const of = std::get_if<request::SourceRequest>(&resolved);
      if (of == nullptr)
        return;
      const auto& expressions = of->source.name_expressions;
      std::set<std::string> names(expressions.begin(), expressions.end());
      for (const request::SourceKernel& kernel :
           request::kernels_in(of->source.source)) {
        if (!kernel.is_template)
          names.insert(kernel.name);
      }
      found_kernels.assign(names.begin(), names.end());
    });
    return found_kernels;
  }
  std::once_flag kernels_found;
  std::vector<std::string> found_kernels;

  // By the toolkit's include folders: with two NVRTCs a source has two.
  using Headers = std::shared_ptr<const key::HeaderSnapshot>;
  SingleFlight<std::string, Headers> scans;  // never under `mutex`
  Mutex mutex;
  std::map<std::string, Headers> headers KILN_GUARDED_BY(mutex);

  [[nodiscard]] Headers known_headers(const std::string& folders) {
    const MutexLock lock(mutex);
    const auto known = headers.find(folders);
    return known == headers.end() ? nullptr : known->second;
  }
};

PreparedRequest::PreparedRequest(request::ResolvedRequest resolved,
                                 std::optional<key::SourceKeyInput> source,
                                 std::vector<PreparedRequest> objects,
                                 std::vector<compile::LinkInput> files)
    : content_(std::make_shared<Content>(std::move(resolved), std::move(source),
                                         std::move(objects), std::move(files))) {}

const std::vector<PreparedRequest>& PreparedRequest::objects() const {
  return content_->objects;
}

const request::ResolvedRequest& PreparedRequest::resolved() const {
  return content_->resolved;
}

const request::TemplateRequest* PreparedRequest::as_template() const {
  return std::get_if<request::TemplateRequest>(&content_->resolved);
}

const request::SourceRequest* PreparedRequest::as_source() const {
  return std::get_if<request::SourceRequest>(&content_->resolved);
}

std::string PreparedRequest::label() const {
  if (const request::TemplateRequest* wanted = as_template())
    return request::format_template(wanted->kernel->name(), wanted->params.values());
  if (content_->objects.empty())
    return std::get<request::SourceRequest>(content_->resolved).source.file_name;
  std::string label = content_->objects.front().label();
  if (const std::size_t parts = content_->objects.size() + content_->files.size();
      parts > 1)
    label += fmt::format(" and {} more", parts - 1);
  return label;
}

std::string PreparedRequest::name() const {
  return content_->source ? request::source_label(content_->source->program_name,
                                                  content_->kernels())
                          : label();
}

const std::vector<std::string>& PreparedRequest::kernels() const {
  return content_->kernels();
}

std::string PreparedRequest::file() const {
  if (as_template() != nullptr)
    return "";
  return content_->objects.empty() ? content_->source->program_name : label();
}

RequestKeys::RequestKeys(const OwnFolder& memo_folder,
                         std::filesystem::path standard_headers)
    : scanner_(memo_folder),
      standard_headers_(std::move(standard_headers)),
      no_headers_(std::make_shared<const key::HeaderSnapshot>()) {}

Result<PreparedRequest> RequestKeys::prepare(request::ResolvedRequest resolved) {
  if (const auto* link = std::get_if<request::LinkRequest>(&resolved)) {
    std::vector<PreparedRequest> objects;
    for (const request::SourceRequest& object : link->objects)
      objects.push_back(KILN_TRY(prepare(object)));
    auto files = KILN_TRY(read_files(link->link.files));
    return PreparedRequest(std::move(resolved), std::nullopt, std::move(objects),
                           std::move(files));
  }
  const auto* source = std::get_if<request::SourceRequest>(&resolved);
  if (source == nullptr)
    return PreparedRequest(std::move(resolved), std::nullopt);
  key::SourceKeyInput input = KILN_TRY(
      source->as_nvrtc == nullptr ? key::normalized(key_input(source->source))
                                  : key_input(source->source, *source->as_nvrtc));
  return PreparedRequest(std::move(resolved), std::move(input));
}

key::StandardHeaders RequestKeys::standard_headers(
    const PreparedRequest& request, const device::Toolchain& toolchain) const {
  using key::StandardHeaders;
  const request::TemplateRequest* wanted = request.as_template();
  const key::SourceKeyInput* source =
      wanted == nullptr ? &*request.content_->source : nullptr;
  if (source != nullptr && source->form == key::SourceForm::kNvrtc)
    return StandardHeaders::kOff;
  if (source != nullptr && std::find(source->options.begin(), source->options.end(),
                                     kNoStandardHeaders) != source->options.end())
    return StandardHeaders::kOff;
  if (!has_libcudacxx(toolchain.include_roots) &&
      !has_libcudacxx(source != nullptr ? source->include_dirs
                                        : include_dirs_of(*wanted->kernel)))
    return StandardHeaders::kNoLibcudacxx;
  return standard_headers_.empty() ? StandardHeaders::kNotInstalled
                                   : StandardHeaders::kSearched;
}

bool is_as_nvrtc(const KeyedRequest& request) {
  const auto* const source = request.request.as_source();
  return source != nullptr && source->as_nvrtc != nullptr;
}

Result<std::shared_ptr<const key::HeaderSnapshot>> RequestKeys::headers(
    const PreparedRequest& request, const device::Toolchain& toolchain,
    const std::stop_token& stop) {
  const request::TemplateRequest* wanted = request.as_template();
  if (wanted != nullptr && !wanted->kernel->has_include())
    return no_headers_;
  PreparedRequest::Content& content = *request.content_;
  using Headers = PreparedRequest::Content::Headers;
  std::string folders;
  for (const auto& root : toolchain.include_roots)
    folders.append(root.native()).push_back('\0');
  if (auto known = content.known_headers(folders))
    return known;
  const auto scan = [&]() -> Result<Headers> {
    // Another thread may have finished between our look and our turn.
    if (auto known = content.known_headers(folders))
      return known;
    const bool has_standard =
        standard_headers(request, toolchain) == key::StandardHeaders::kSearched;
    const key::SourceKeyInput input =
        wanted != nullptr ? scan_input(*wanted->kernel) : *content.source;
    auto scanned = KILN_TRY(scanner_.scan(input, last_folders(input, toolchain),
                                          has_standard ? standard_headers_ : "",
                                          std::chrono::system_clock::now(), stop));
    const MutexLock lock(content.mutex);
    return content.headers[folders] = std::move(scanned.headers);
  };
  // If two threads need the headers of one request, the second waits for the scan,
  // until its own `stop`.
  return content.scans.run(folders, stop, scan).result;
}

std::shared_ptr<const key::TemplateKeys> RequestKeys::template_keys(
    const request::TemplateRequest& wanted, const KeyedRequest& request) {
  const auto make = [&] {
    return std::make_shared<const key::TemplateKeys>(
        build_context(request.target, request.toolchain->toolchain),
        complete_input(*wanted.kernel, request.toolchain->toolchain, *request.headers),
        *request.headers);
  };
  if (wanted.kernel->has_include())
    return make();  // its headers may have changed by the next call
  const MutexLock lock(mutex_);
  auto& keys = template_keys_[{wanted.kernel.get(), request.target, request.toolchain}];
  if (keys == nullptr)
    keys = make();
  return keys;
}

Result<KeyedRequest> RequestKeys::key(
    const PreparedRequest& request, device::Target target,
    std::shared_ptr<const device::ToolchainChoice> toolchain,
    const std::stop_token& stop, std::shared_ptr<const device::Linker> linker) {
  KeyedRequest keyed{.request = request,
                     .target = target,
                     .toolchain = std::move(toolchain),
                     .headers = no_headers_,
                     .key = {},
                     .linker = std::move(linker)};
  for (const PreparedRequest& object : request.objects())
    keyed.objects.push_back(
        KILN_TRY(key(object, object_target(object, target), keyed.toolchain, stop)));
  if (!keyed.objects.empty()) {
    keyed.key = preimage(keyed).digest();
    return keyed;
  }
  keyed.headers = KILN_TRY(headers(request, keyed.toolchain->toolchain, stop));
  keyed.has_name = !is_as_nvrtc(keyed) || request.as_source()->as_nvrtc->has_paths ||
                   keyed.headers->names_program ||
                   shows_name(*request.content_->source, *keyed.headers);
  if (const request::TemplateRequest* wanted = request.as_template())
    keyed.key = template_keys(*wanted, keyed)->key(key_parameters(wanted->params));
  else
    keyed.key = preimage(keyed).digest();
  return keyed;
}

KeyedRequest RequestKeys::named(const KeyedRequest& request) {
  KeyedRequest named = request;
  if (!std::exchange(named.has_name, true))
    named.key = preimage(named).digest();
  return named;
}

const std::string& RequestKeys::name_of_program(const PreparedRequest& request) {
  return request.content_->source->program_name;
}

Fields RequestKeys::preimage(const KeyedRequest& request) {
  if (const request::TemplateRequest* wanted = request.request.as_template())
    return template_keys(*wanted, request)->preimage(key_parameters(wanted->params));
  if (!request.objects.empty())
    return key::link_preimage(
        link_input(request, request.request.content_->file_digests));
  const device::Toolchain& toolchain = request.toolchain->toolchain;
  auto input =
      complete_input(*request.request.content_->source, toolchain, *request.headers);
  input.has_name = request.has_name;
  const auto& given = *request.request.as_source();
  // As -I spells them they begin __FILE__, and lines of the log, in each header found.
  if (given.as_nvrtc != nullptr && input.paths.empty() &&
      !request.headers->files.empty())
    input.paths = given.as_nvrtc->include_dirs;
  return key::source_preimage(build_context(request.target, toolchain), input,
                              *request.headers);
}

Result<compile::CompileJob> RequestKeys::job(const KeyedRequest& request) {
  const device::Toolchain& toolchain = request.toolchain->toolchain;
  compile::CompileJob job;
  job.label = request.request.label();
  job.nvrtc = {toolchain.nvrtc, toolchain.builtins};
  job.target = request.target;
  const auto& [kind, target, identity] = build_context(request.target, toolchain);
  if (kind == device::ImageKind::kLtoIr)
    job.options = {
        "--gpu-architecture=" + to_string(device::Target{request.target.architecture}),
        "--dlink-time-opt"};
  else
    job.options = {"--gpu-architecture=" + target};
  if (const request::TemplateRequest* wanted = request.request.as_template()) {
    const auto& [kernel, digests, options, names] =
        complete_input(*wanted->kernel, toolchain, *request.headers);
    job.source = KILN_TRY(wanted->kernel->render(wanted->params)).text;
    job.program_name = program_name(*wanted->kernel);
    append(job.options, options);
    job.name_expressions = names;
    if (wanted->kernel->has_include()) {
      append_folders(job.options, include_dirs_of(*wanted->kernel));
      append_last_folders(job.options, toolchain, *request.headers);
    }
    return job;
  }
  const auto& [source, options, macros, include_dirs, memory_headers, names,
               program_name, has_name, form, working_directory, paths] =
      complete_input(*request.request.content_->source, toolchain, *request.headers);
  std::ignore = std::tie(has_name, paths);  // of the key alone
  job.source = source;
  job.program_name = program_name;
  job.name_expressions = names;
  // Without its '/' at the end, as the shell's PWD is.
  job.working_directory = working_directory.substr(
      0, std::max(working_directory.size() - 1, std::size_t{1}));
  for (const auto& [name, text] : memory_headers) job.headers.push_back({name, text});
  if (form == key::SourceForm::kNvrtc) {
    const auto& given = *request.request.as_source();
    job.as_nvrtc = true;
    if (!given.target && given.source.target != request::kDefaultTarget)
      job.options = {
          "--gpu-architecture=" +
          to_string(device::Target{
              request.target.architecture,
              kind == device::ImageKind::kPtx ? kind : device::ImageKind::kCubin})};
    else
      job.options.clear();
    append(job.options, given.source.options);
    return job;
  }
  append(job.options, options);
  std::erase(job.options, kNoStandardHeaders);
  for (const auto& [action, text] : macros)
    job.options.push_back((action == key::MacroAction::kDefine ? "-D" : "-U") + text);
  append_folders(job.options, include_dirs);
  append_last_folders(job.options, toolchain, *request.headers);
  return job;
}

compile::LinkJob RequestKeys::link_job(const KeyedRequest& request,
                                       std::vector<compile::LinkInput> objects) {
  const auto& files = request.request.content_->files;
  objects.insert(objects.end(), files.begin(), files.end());
  return {
      .label = request.request.label(),
      .linker = request.linker->path,
      .options = link_input(request, {}).options,
      .inputs = std::move(objects),
      .device_runtime = request.linker->device_runtime,
      .target = request.target,
      .cuda_version = device::driver_value(request.toolchain->toolchain.facts.version)};
}

}  // namespace kiln
