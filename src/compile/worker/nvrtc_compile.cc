#include "compile/worker/nvrtc_compile.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "compile/worker/compile_log.h"
#include "compile/worker/fixed_place.h"
#include "compile/worker/loaded_libraries.h"
#include "compile/worker/precompiled_file.h"
#include "device/cuda_version.h"
#include "util/posix_error.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

using Clock = std::chrono::steady_clock;

/// Owns an nvrtcProgram. Thread safety: one thread.
class Program {
 public:
  Program(const Nvrtc& nvrtc, nvrtcProgram raw, bool as_nvrtc)
      : nvrtc_(nvrtc), raw_(raw), as_nvrtc_(as_nvrtc) {}
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    // Nothing is left to do about a program that cannot be destroyed.
    std::ignore = nvrtc_.destroy_program(&raw_);
  }

  [[nodiscard]] const Nvrtc& nvrtc() const { return nvrtc_; }
  [[nodiscard]] nvrtcProgram raw() const { return raw_; }

  /// Errors of a call on this program carry its log.
  [[nodiscard]] Result<void> check(nvrtcResult result, std::string_view call) const {
    if (result == NVRTC_SUCCESS)
      return {};
    const std::string said = log();
    Error error = nvrtc_error(nvrtc_, result, call, said);
    if (as_nvrtc_)
      error.message =
          fmt::format("{}: {}\n{}", call, nvrtc_.error_string(result), said);
    return tl::unexpected(std::move(error));
  }

  /// "" where NVRTC does not give one: the log is never worth an error of its own.
  [[nodiscard]] std::string log() const {
    std::size_t size = 0;
    if (nvrtc_.log_size(raw_, &size) != NVRTC_SUCCESS || size <= 1)
      return {};
    std::string text(size, '\0');
    if (nvrtc_.log(raw_, text.data()) != NVRTC_SUCCESS)
      return {};
    // Behind messages of ptxas there are two.
    text.resize(as_nvrtc_ ? size - 1 : text.find_last_not_of('\0') + 1);
    return text;
  }

 private:
  const Nvrtc& nvrtc_;
  nvrtcProgram raw_;
  bool as_nvrtc_;
};

std::vector<const char*> pointers(const std::vector<std::string>& strings) {
  std::vector<const char*> list;
  list.reserve(strings.size());
  for (const auto& text : strings) list.push_back(text.c_str());
  return list;
}

/// NVRTC takes C strings: it would silently not compile what follows a NUL.
Result<void> refuse_nul(const CompileJob& job) {
  const auto check = [](const std::string& text,
                        std::string_view what) -> Result<void> {
    if (text.find('\0') == std::string::npos)
      return {};
    return refuse("{} holds a NUL byte", what);
  };
  KILN_TRY(check(job.source, "the source"));
  KILN_TRY(check(job.program_name, "the source's name"));
  for (const auto& header : job.headers) {
    KILN_TRY(check(header.name, "a header's name"));
    KILN_TRY(check(header.text, fmt::format("header {}", header.name)));
  }
  for (const auto& option : job.options) KILN_TRY(check(option, "an option"));
  for (const auto& expression : job.name_expressions)
    KILN_TRY(check(expression, "a name expression"));
  return {};
}

Result<nvrtcProgram> create(const Nvrtc& nvrtc, const CompileJob& job) {
  KILN_TRY(refuse_nul(job));
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (const auto& header : job.headers) {
    names.push_back(header.name.c_str());
    texts.push_back(header.text.c_str());
  }
  nvrtcProgram raw = nullptr;
  const auto result =
      nvrtc.create_program(&raw, job.source.c_str(), job.program_name.c_str(),
                           static_cast<int>(names.size()), texts.data(), names.data());
  if (result != NVRTC_SUCCESS)
    return tl::unexpected(nvrtc_error(nvrtc, result, "nvrtcCreateProgram", {}));
  return raw;
}

/// NVRTC asks now and then whether to stop; 1 means yes.
int deadline_passed(void* deadline, void* /*reserved*/) {
  return Clock::now() >= *static_cast<const Clock::time_point*>(deadline) ? 1 : 0;
}

/// By default NVRTC instantiates what the headers use when it makes the precompiled
/// one, and then the variables of the image are in another order than without: a
/// compile instantiates at the end of the source. NVRTC compares the option with the
/// file's.
constexpr const char* kKeepsOrder = "--instantiate-templates-in-pch=false";

/// From 12.9 on NVRTC starts the driver and keeps what it makes in the driver's own
/// cache, beneath Kiln's: outside of the key, unverified, and as slow as that driver.
constexpr const char* kNoCache = "--no-cache";

/// Others refuse the option.
bool has_cache(const Nvrtc& nvrtc) {
  device::CudaVersion version;
  return nvrtc.version(&version.major, &version.minor) == NVRTC_SUCCESS &&
         version >= device::CudaVersion{12, 9};
}

/// NVRTC's own, by the beginning of their file's name.
constexpr std::string_view kBuiltins = "libnvrtc-builtins";

/// What one run of the compiler does beside its job.
struct Precompiled {
  std::string option;      // "--use-pch=/…"
  std::string_view doing;  // NVRTC's word for it: "using", "creating"; "": nothing
  std::filesystem::path path;
};

Result<void> compile(const Program& program, const CompileJob& job,
                     const Precompiled& precompiled, Clock::time_point deadline) {
  const Nvrtc& nvrtc = program.nvrtc();
  for (const auto& expression : job.name_expressions) {
    KILN_TRY(program.check(nvrtc.add_name_expression(program.raw(), expression.c_str()),
                           fmt::format("nvrtcAddNameExpression({})", expression)));
  }
  if (nvrtc.set_flow_callback != nullptr) {
    KILN_TRY(program.check(
        nvrtc.set_flow_callback(program.raw(), deadline_passed, &deadline),
        "nvrtcSetFlowCallback"));
  }
  auto options = job.options;
  if (!job.as_nvrtc && job.name_expressions.size() <= kMostNamesInLog)
    options.insert(options.end(), log_options().begin(), log_options().end());
  if (has_cache(nvrtc))
    options.emplace_back(kNoCache);
  if (!precompiled.option.empty()) {
    options.push_back(precompiled.option);
    options.emplace_back(kKeepsOrder);
  }
  const auto raw_options = pointers(options);
  return program.check(
      nvrtc.compile_program(program.raw(), static_cast<int>(raw_options.size()),
                            raw_options.data()),
      "nvrtcCompileProgram");
}

using GetSize = decltype(Nvrtc::cubin_size);
using GetImage = decltype(Nvrtc::cubin);

Result<Bytes> image_of(const Program& program, std::string_view name, GetSize get_size,
                       GetImage get) {
  if (get_size == nullptr || get == nullptr)
    return fail(ErrorCode::kUnavailable, "{} has no {}", program.nvrtc().path.native(),
                name);
  std::size_t size = 0;
  KILN_TRY(program.check(get_size(program.raw(), &size), fmt::format("{}Size", name)));
  Bytes image(size);
  if (size > 0)
    KILN_TRY(
        program.check(get(program.raw(), reinterpret_cast<char*>(image.data())), name));
  return image;
}

/// Without the NULs at its end.
Result<std::string> ptx_of(const Program& program) {
  const Bytes bytes = KILN_TRY(
      image_of(program, "nvrtcGetPTX", program.nvrtc().ptx_size, program.nvrtc().ptx));
  std::string text(as_text(bytes));
  text.resize(text.find_last_not_of('\0') + 1);
  return text;
}

Result<void> read_image(const Program& program, const CompileJob& job,
                        CompileOutput& output) {
  if (job.target.kind == device::ImageKind::kPtx) {
    const auto text = KILN_TRY(ptx_of(program));
    const auto bytes = as_bytes(text);
    output.image.assign(bytes.begin(), bytes.end());
  } else if (job.target.kind == device::ImageKind::kLtoIr) {
    output.image = KILN_TRY(image_of(
        program, "nvrtcGetLTOIR", program.nvrtc().lto_ir_size, program.nvrtc().lto_ir));
  } else {
    output.image = KILN_TRY(image_of(
        program, "nvrtcGetCUBIN", program.nvrtc().cubin_size, program.nvrtc().cubin));
    output.ptx = KILN_TRY(ptx_of(program));
  }
  if (!output.image.empty())
    return {};
  return fail(ErrorCode::kCompileFailed,
              "NVRTC {} reported success and gave no image; do the options ask for the "
              "target's architecture?\n{}",
              program.nvrtc().path.native(), diagnostics(output.log));
}

/// Drops the last entries if the names of all are longer than any person reads.
void limit_names(std::vector<ResourceUse>& resources) {
  std::size_t bytes = 0;
  const auto too_long = [&bytes](const ResourceUse& use) {
    bytes += use.entry.size();
    return bytes > kTextEndBytes;
  };
  resources.erase(std::find_if(resources.begin(), resources.end(), too_long),
                  resources.end());
}

Result<void> read_lowered_names(const Program& program, const CompileJob& job,
                                CompileOutput& output) {
  for (const auto& expression : job.name_expressions) {
    const char* lowered = nullptr;
    const auto call = fmt::format("nvrtcGetLoweredName({})", expression);
    const nvrtcResult result =
        program.nvrtc().lowered_name(program.raw(), expression.c_str(), &lowered);
    if (job.as_nvrtc) {  // a program may never ask for it
      const bool is_there = result == NVRTC_SUCCESS && lowered != nullptr;
      output.lowered_names.push_back({expression, is_there ? lowered : ""});
      continue;
    }
    KILN_TRY(program.check(result, call));
    if (lowered == nullptr || *lowered == '\0')
      return fail(ErrorCode::kCompileFailed, call + " gave no name");
    output.lowered_names.push_back({.expression = expression, .lowered = lowered});
  }
  return {};
}

/// Runs the compiler once. Errors: as compile_here; kCompileFailed if NVRTC did not do
/// what `precompiled` says, although it compiled.
Result<CompileOutput> run(const Program& program, const CompileJob& job,
                          const Precompiled& precompiled, Clock::time_point deadline) {
  const auto begin = Clock::now();
  KILN_TRY(compile(program, job, precompiled, deadline));
  CompileOutput output;
  output.nvrtc_time =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  output.log = program.log();
  if (!precompiled.doing.empty() &&
      !take_message(output.log, precompiled.doing, precompiled.path))
    return fail(ErrorCode::kCompileFailed, "NVRTC is not {} {}: {}", precompiled.doing,
                precompiled.path.native(), diagnostics(output.log));
  return output;
}

/// The file is whole and, as far as NVRTC says, fit for use. A text that the compiler
/// warns about gets none: those that use it would lack the warnings. Errors:
/// kUnavailable if this process makes none, whatever the source.
Result<CompileOutput> make_precompiled(const Program& program, const CompileJob& job,
                                       Clock::time_point deadline) {
  const Nvrtc& nvrtc = program.nvrtc();
  if (nvrtc.pch_create_status == nullptr || !FixedPlace::is_in_window(nvrtc.address))
    return fail(ErrorCode::kUnavailable,
                "{} cannot make precompiled headers for other processes",
                nvrtc.path.native());
  auto output = KILN_TRY(run(program, job,
                             {.option = "--create-pch=" + job.make_precompiled.native(),
                              .doing = "creating",
                              .path = job.make_precompiled},
                             deadline));
  KILN_TRY(
      program.check(nvrtc.pch_create_status(program.raw()), "nvrtcGetPCHCreateStatus"));
  if (const auto text = diagnostics(output.log); !text.empty())
    return refuse("NVRTC reports: " + text);
  output.made = KILN_TRY(describe_precompiled(job.make_precompiled, nvrtc.address));
  output.nvrtc = loaded_as(nvrtc.path);
  output.builtins = loaded_named(kBuiltins);
  return output;
}

/// Relative paths are below `folder` until the result is destroyed.
Result<std::shared_ptr<void>> enter_folder(const std::filesystem::path& folder) {
  std::shared_ptr<void> leaves(nullptr, [](void*) {
    std::ignore = ::chdir("/");
    ::unsetenv("PWD");  // NOLINT(concurrency-mt-unsafe): as below
  });
  if (::chdir(folder.c_str()) != 0)
    return posix_error("chdir", folder, errno);
  // Debug information has the folder by this name, if it is one of the folder's.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): NVRTC, which reads it, does not run
  if (::setenv("PWD", folder.c_str(), 1) != 0)
    return posix_error("setenv", folder, errno);
  return leaves;
}

Result<CompileOutput> compile_source(const Nvrtc& nvrtc, const CompileJob& job,
                                     const Precompiled& precompiled,
                                     Clock::time_point deadline,
                                     const PhaseCallback& enter) {
  const auto leaves =
      job.as_nvrtc ? KILN_TRY(enter_folder(job.working_directory)) : nullptr;
  const nvrtcProgram raw = KILN_TRY(create(nvrtc, job));
  const Program program(nvrtc, raw, job.as_nvrtc);
  enter(BuildPhase::kCompiling);
  if (!job.make_precompiled.empty())
    return make_precompiled(program, job, deadline);
  auto output = KILN_TRY(run(program, job, precompiled, deadline));

  enter(BuildPhase::kReading);
  output.resources = parse_resource_use(output.log);
  if (!job.as_nvrtc)
    output.log = shortened(std::move(output.log));
  limit_names(output.resources);
  KILN_TRY(read_image(program, job, output));
  KILN_TRY(read_lowered_names(program, job, output));
  output.nvrtc = loaded_as(nvrtc.path);
  output.builtins = loaded_named(kBuiltins);
  return output;
}

}  // namespace

Result<CompileOutput> compile_here(const Nvrtc& nvrtc, const CompileJob& job,
                                   Clock::time_point deadline,
                                   const PhaseCallback& on_phase) {
  const auto enter = [&on_phase](BuildPhase phase) {
    if (on_phase)
      on_phase(phase);
  };
  const PrecompiledFile& file = job.precompiled;
  if (file.path.empty())
    return compile_source(nvrtc, job, {}, deadline, enter);
  PrecompiledUse use = check_precompiled(file, nvrtc.address);
  if (use == PrecompiledUse::kUsed) {
    auto output = compile_source(nvrtc, job,
                                 {.option = "--use-pch=" + file.path.native(),
                                  .doing = "using",
                                  .path = file.path},
                                 deadline, enter);
    if (output)
      output->precompiled = use;
    if (output || output.error().code == ErrorCode::kTimeout)
      return output;
    // The same error without it is the source's own, in the words that it has without.
    use = PrecompiledUse::kRefused;
  }
  auto output = compile_source(nvrtc, job, {}, deadline, enter);
  if (output)
    output->precompiled = use;
  return output;
}

}  // namespace kiln::compile
