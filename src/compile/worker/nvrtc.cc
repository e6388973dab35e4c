#include "compile/worker/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>

#include "compile/protocol/protocol.h"
#include "compile/worker/compile_log.h"
#include "compile/worker/fixed_place.h"
#include "compile/worker/loaded_libraries.h"
#include "util/mutex.h"
#include "util/open_library.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

/// Fills `entry` or says which name the library lacks.
template <typename Function>
Result<void> resolve(void* library, const Nvrtc& nvrtc, const char* name,
                     Function& entry) {
  if (look_up(library, name, entry))
    return {};
  return fail(ErrorCode::kUnavailable,
              "{} has no {}: it is not an NVRTC, or is older than 11.2",
              nvrtc.path.native(), name);
}

Result<void> resolve_all(void* library, Nvrtc& nvrtc) {
  const auto need = [&](const char* name, auto& entry) {
    return resolve(library, nvrtc, name, entry);
  };
  KILN_TRY(need("nvrtcVersion", nvrtc.version));
  KILN_TRY(need("nvrtcGetErrorString", nvrtc.error_string));
  KILN_TRY(need("nvrtcGetNumSupportedArchs", nvrtc.num_supported_archs));
  KILN_TRY(need("nvrtcGetSupportedArchs", nvrtc.supported_archs));
  KILN_TRY(need("nvrtcCreateProgram", nvrtc.create_program));
  KILN_TRY(need("nvrtcDestroyProgram", nvrtc.destroy_program));
  KILN_TRY(need("nvrtcAddNameExpression", nvrtc.add_name_expression));
  KILN_TRY(need("nvrtcCompileProgram", nvrtc.compile_program));
  KILN_TRY(need("nvrtcGetLoweredName", nvrtc.lowered_name));
  KILN_TRY(need("nvrtcGetProgramLogSize", nvrtc.log_size));
  KILN_TRY(need("nvrtcGetProgramLog", nvrtc.log));
  KILN_TRY(need("nvrtcGetPTXSize", nvrtc.ptx_size));
  KILN_TRY(need("nvrtcGetPTX", nvrtc.ptx));
  KILN_TRY(need("nvrtcGetCUBINSize", nvrtc.cubin_size));
  KILN_TRY(need("nvrtcGetCUBIN", nvrtc.cubin));
  std::ignore = look_up(library, "nvrtcGetLTOIRSize", nvrtc.lto_ir_size);
  std::ignore = look_up(library, "nvrtcGetLTOIR", nvrtc.lto_ir);
  // Optional, and missing in older versions: killing the process bounds a build.
  std::ignore =
      resolve(library, nvrtc, "nvrtcSetFlowCallback", nvrtc.set_flow_callback);
  std::ignore = resolve(library, nvrtc, "nvrtcSetPCHHeapSize", nvrtc.set_pch_heap_size);
  std::ignore =
      resolve(library, nvrtc, "nvrtcGetPCHCreateStatus", nvrtc.pch_create_status);
  return {};
}

std::uint64_t address_of(const Nvrtc& nvrtc) {
  Dl_info info{};
  return ::dladdr(reinterpret_cast<const void*>(nvrtc.version), &info) == 0
             ? 0
             : reinterpret_cast<std::uintptr_t>(info.dli_fbase);
}

Result<std::unique_ptr<const Nvrtc>> load(const std::filesystem::path& path) {
  // A worker without a folder for precompiled headers leaves the addresses to chance.
  const bool makes_precompiled = ::secure_getenv(kScratchVariable) != nullptr;
  std::optional<FixedPlace> place;
  if (makes_precompiled)
    place.emplace();
  const auto library = open_library(path);
  place.reset();
  if (!library)
    return fail(ErrorCode::kUnavailable, "cannot open NVRTC {}: {}", path.native(),
                library.error().message);
  auto nvrtc = std::make_unique<Nvrtc>();
  nvrtc->path = path;
  KILN_TRY(resolve_all(*library, *nvrtc));
  nvrtc->address = address_of(*nvrtc);
  // Before the first compile; without it the heap is smaller, and elsewhere.
  if (makes_precompiled && nvrtc->set_pch_heap_size != nullptr)
    std::ignore = nvrtc->set_pch_heap_size(kPrecompiledHeapBytes);
  return nvrtc;
}

/// NVRTC asks the loader for its builtins by name; the loader returns the builtins that
/// are already loaded.
void load_builtins(const std::filesystem::path& path) {
  if (path.is_absolute()) {
    // On failure NVRTC searches for them itself and reports what is missing.
    std::ignore = open_library(path);
  }
}

struct Tables {
  Mutex mutex;
  std::map<std::filesystem::path, const Nvrtc*> by_path KILN_GUARDED_BY(mutex);
};

Tables& tables() {
  // Never destroyed, see Nvrtc.
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const instance = new Tables;
  return *instance;
}

ErrorCode code_of(nvrtcResult result, std::string_view log) {
  if (says_out_of_memory(log))
    return ErrorCode::kResourceLimit;
  switch (result) {
    case NVRTC_ERROR_OUT_OF_MEMORY:
    case NVRTC_ERROR_PCH_CREATE_HEAP_EXHAUSTED:
      return ErrorCode::kResourceLimit;
    case NVRTC_ERROR_BUILTIN_OPERATION_FAILURE:
      return ErrorCode::kUnavailable;
    case NVRTC_ERROR_INVALID_INPUT:
    case NVRTC_ERROR_INVALID_OPTION:
    case NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID:
      return ErrorCode::kInvalidArgument;
    case NVRTC_ERROR_CANCELLED:
      return ErrorCode::kTimeout;
    default:
      return ErrorCode::kCompileFailed;
  }
}

}  // namespace

Result<const Nvrtc*> open_nvrtc(const NvrtcPaths& paths) {
  const std::filesystem::path& path = paths.nvrtc;
  if (!path.is_absolute()) {
    return refuse("the path of NVRTC must be absolute, not '{}'", path.native());
  }
  Tables& known = tables();
  const MutexLock lock(known.mutex);
  const auto at = known.by_path.find(path);
  if (at != known.by_path.end())
    return at->second;
  load_builtins(paths.builtins);
  auto loaded = KILN_TRY(load(path));
  return known.by_path.emplace(path, loaded.release()).first->second;
}

Error nvrtc_error(const Nvrtc& nvrtc, nvrtcResult result, std::string_view call,
                  std::string_view log) {
  const auto code = code_of(result, log);
  const auto text = shortened(diagnostics(log));
  auto message = fmt::format("{}: {}", call, nvrtc.error_string(result));
  if (code == ErrorCode::kResourceLimit)
    message +=
        ": the compiler ran out of memory; raise the memory limit or simplify "
        "the source";
  if (!text.empty())
    message.append("\n").append(text);
  return {code, std::move(message)};
}

Result<ToolchainDescription> describe(const Nvrtc& nvrtc) {
  const auto check = [&nvrtc](nvrtcResult result, const char* call) -> Result<void> {
    if (result == NVRTC_SUCCESS)
      return {};
    return tl::unexpected(nvrtc_error(nvrtc, result, call, {}));
  };
  ToolchainDescription description;
  KILN_TRY(
      check(nvrtc.version(&description.major, &description.minor), "nvrtcVersion"));
  int count = 0;
  KILN_TRY(check(nvrtc.num_supported_archs(&count), "nvrtcGetNumSupportedArchs"));
  std::vector<int> numbers(static_cast<std::size_t>(std::max(0, count)));
  if (!numbers.empty())
    KILN_TRY(check(nvrtc.supported_archs(numbers.data()), "nvrtcGetSupportedArchs"));
  for (const int number : numbers)
    description.architectures.push_back({.major = number / 10, .minor = number % 10});
  std::sort(description.architectures.begin(), description.architectures.end());
  description.nvrtc = loaded_as(nvrtc.path);
  return description;
}

}  // namespace kiln::compile
