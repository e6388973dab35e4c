#include "compile/worker/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "compile/protocol/protocol.h"
#include "compile/worker/compile_log.h"
#include "compile/worker/fixed_place.h"
#include "compile/worker/loaded_libraries.h"
#include "util/open_library.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

Result<void> resolve_all(void* library, Nvrtc& nvrtc) {
#define KILN_LOOK_UP(member, function)                                     \
  if (!look_up(library, #function, nvrtc.member))                          \
    return fail(ErrorCode::kUnavailable,                                   \
                "{} has no {}: it is not an NVRTC, or is older than 11.2", \
                nvrtc.path.native(), #function);
  KILN_NVRTC_FUNCTIONS(KILN_LOOK_UP)
#undef KILN_LOOK_UP
  look_up(library, "nvrtcGetLTOIRSize", nvrtc.lto_ir_size);
  look_up(library, "nvrtcGetLTOIR", nvrtc.lto_ir);
  look_up(library, "nvrtcSetFlowCallback", nvrtc.set_flow_callback);
  look_up(library, "nvrtcSetPCHHeapSize", nvrtc.set_pch_heap_size);
  look_up(library, "nvrtcGetPCHCreateStatus", nvrtc.pch_create_status);
  return {};
}

std::uint64_t address_of(const Nvrtc& nvrtc) {
  Dl_info info{};
  return ::dladdr(reinterpret_cast<const void*>(nvrtc.version), &info) == 0
             ? 0
             : reinterpret_cast<std::uintptr_t>(info.dli_fbase);
}

Result<std::unique_ptr<Nvrtc>> load(const std::filesystem::path& path) {
  // A worker without a folder for precompiled headers leaves the addresses to chance.
  const bool makes_precompiled = ::secure_getenv(kScratchVariable) != nullptr;
  std::optional<FixedPlace> place;
  if (makes_precompiled)
    place.emplace();
  auto opened = open_library(path);
  place.reset();
  void* const library =
      KILN_TRY(about("cannot open NVRTC " + path.native(), std::move(opened)));
  auto nvrtc = std::make_unique<Nvrtc>();
  nvrtc->path = path;
  KILN_TRY(resolve_all(library, *nvrtc));
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
  return LibraryTables<Nvrtc>::get(path, [&] {
    load_builtins(paths.builtins);
    return load(path);
  });
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
