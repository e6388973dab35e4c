#include "device/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "device/compatibility.h"
#include "device/context_scope.h"
#include "device/cubin.h"
#include "util/log.h"
#include "util/try.h"

namespace kiln::device {
namespace {

std::string describe(const Image& image, const Device& device) {
  constexpr std::size_t kShownDigits = 12;
  return fmt::format("{} (key {}) on {}", image.label,
                     std::string_view(image.key).substr(0, kShownDigits),
                     label_of(device));
}

Result<void> check_fit(const Image& image, const PrimaryContext& context,
                       std::string_view on) {
  const ComputeCapability capability = context.device().capability;
  if (const std::string why = why_not(image.target, capability); !why.empty())
    return refuse("{}: {}; build it for {}", on, why, to_string(capability));
  return about(
      on, check_accepted(context.driver().version(), image.target.kind, image.toolkit));
}

// Checks the image before the driver gets it: the driver is given no size, and reads
// wherever a damaged image sends it.
Result<std::vector<EntryPoint>> read_image(const Image& image) {
  const std::vector<std::string_view> expected(image.entry_points.begin(),
                                               image.entry_points.end());
  KILN_TRY(check_image(image.bytes, image.target, expected));
  if (image.target.kind == ImageKind::kCubin)
    return KILN_TRY(read_cubin(image.bytes)).entry_points;
  return KILN_TRY(read_ptx(image.bytes)).entry_points;
}

Result<CUmodule> load_cubin(const DriverTable& driver, ByteView bytes,
                            std::string_view on) {
  CUmodule module = nullptr;
  KILN_TRY(driver_result(
      driver, driver.cuModuleLoadDataEx(&module, bytes.data(), 0, nullptr, nullptr),
      "cuModuleLoadDataEx", on));
  return module;
}

// The log of the driver's compiler for one PTX image.
class JitLog {
 public:
  static constexpr std::size_t kOptions = 4;

  [[nodiscard]] std::array<CUjit_option, kOptions> names() const {
    return {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  }
  // The driver expects the size cast to a pointer.
  [[nodiscard]] std::array<void*, kOptions> values() {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    void* const size = reinterpret_cast<void*>(static_cast<std::uintptr_t>(kBytes - 1));
    return {info_.data(), size, errors_.data(), size};
  }
  [[nodiscard]] std::string_view info() const { return text_of(info_); }
  [[nodiscard]] std::string_view errors() const { return text_of(errors_); }

 private:
  static constexpr std::size_t kBytes = 16384;

  static std::string_view text_of(const std::vector<char>& buffer) {
    std::string_view text(buffer.data(), ::strnlen(buffer.data(), buffer.size()));
    text.remove_suffix(text.size() - (text.find_last_not_of(" \n") + 1));
    return text;
  }

  std::vector<char> info_ = std::vector<char>(kBytes);
  std::vector<char> errors_ = std::vector<char>(kBytes);
};

Result<CUmodule> load_ptx(const DriverTable& driver, ByteView bytes,
                          std::string_view on) {
  std::string text(as_text(bytes));
  text.resize(text.find_last_not_of('\0') + 1);  // c_str() adds one NUL
  JitLog jit_log;
  auto names = jit_log.names();
  auto values = jit_log.values();
  CUmodule module = nullptr;
  const CUresult result = driver.cuModuleLoadDataEx(
      &module, text.c_str(), JitLog::kOptions, names.data(), values.data());
  if (result == CUDA_SUCCESS) {
    if (!jit_log.info().empty())
      log(LogLevel::kDebug, {on, ": the driver's compiler says: ", jit_log.info()});
    return module;
  }
  Error error = driver_error(driver, result, "cuModuleLoadDataEx", on).value();
  for (const std::string_view said : {jit_log.errors(), jit_log.info()}) {
    if (!said.empty())
      error.message += fmt::format("; the driver's compiler says: {}", said);
  }
  return tl::unexpected(std::move(error));
}

bool can_enumerate(const DriverTable& driver) {
  return driver.cuModuleGetFunctionCount != nullptr &&
         driver.cuModuleEnumerateFunctions != nullptr &&
         driver.cuFuncGetName != nullptr;
}

tl::unexpected<Error> not_found(std::string_view on, std::string_view name,
                                std::string_view found) {
  return fail(ErrorCode::kCorrupt,
              "{}: the driver finds no kernel {} in the image; the image has {}", on,
              name, found.empty() ? "none" : found);
}

}  // namespace

std::string why_unreachable(const std::vector<std::string>& kernels) {
  return fmt::format(
      "the driver does not find {}, of local binding (static, or in an anonymous "
      "namespace); give it external linkage, or use a driver for CUDA 12.4 or later",
      fmt::join(kernels, ", "));
}

LoadedModule::LoadedModule(std::shared_ptr<const PrimaryContext> context,
                           std::string label)
    : context_(std::move(context)), label_(std::move(label)) {}

Result<std::shared_ptr<const LoadedModule>> LoadedModule::load(
    const std::shared_ptr<const PrimaryContext>& context, const Image& image) {
  const DriverTable& driver = context->driver().table();
  const std::string on = describe(image, context->device());
  KILN_TRY(check_fit(image, *context, on));
  auto in_image = KILN_TRY(about(on, read_image(image)));
  const RelaxedCapture relaxed(driver);
  const ContextScope scope(*context);
  KILN_TRY(scope.check(on));
  const std::shared_ptr<LoadedModule> made(new LoadedModule(context, on));
  made->handle_ = KILN_TRY(image.target.kind == ImageKind::kCubin
                               ? load_cubin(driver, image.bytes, on)
                               : load_ptx(driver, image.bytes, on));
  Enumeration enumerated;
  if (can_enumerate(driver)) {
    enumerated = KILN_TRY(enumerate(*made));
    for (const std::string& name : image.entry_points) {
      if (enumerated.contains(name))
        continue;
      std::vector<std::string> present;
      for (const auto& [found, function] : enumerated) present.push_back(found);
      return not_found(on, name, fmt::format("{}", fmt::join(present, ", ")));
    }
  }
  KILN_TRY(made->resolve(image.entry_points, std::move(in_image), enumerated));
  return made;
}

Result<LoadedModule::Enumeration> LoadedModule::enumerate(const LoadedModule& module) {
  const DriverTable& driver = module.context().driver().table();
  unsigned count = 0;
  const auto check = [&](CUresult result, std::string_view call) {
    return driver_result(driver, result, call, module.label());
  };
  KILN_TRY(check(driver.cuModuleGetFunctionCount(&count, module.handle()),
                 "cuModuleGetFunctionCount"));
  std::vector<CUfunction> functions(count);
  KILN_TRY(
      check(driver.cuModuleEnumerateFunctions(functions.data(), count, module.handle()),
            "cuModuleEnumerateFunctions"));
  Enumeration found;
  for (const CUfunction function : functions) {
    const char* name = nullptr;
    KILN_TRY(check(driver.cuFuncGetName(&name, function), "cuFuncGetName"));
    found.emplace(name, function);
  }
  return found;
}

// Resolves the wanted kernels in that order; if none are named, all in the image. One
// of local binding that the driver can neither find by name nor enumerate is left out,
// unless there is no other: the image has the rest.
Result<void> LoadedModule::resolve(const std::vector<std::string>& wanted,
                                   std::vector<EntryPoint> in_image,
                                   const Enumeration& enumerated) {
  const auto handle_of = [&](const EntryPoint& each) -> CUfunction {
    const auto found = each.is_local ? enumerated.find(each.name) : enumerated.end();
    return found == enumerated.end() ? nullptr : found->second;
  };
  if (wanted.empty()) {
    for (EntryPoint& each : in_image) {
      auto function =
          Function::resolve(*this, each.name, each.parameters, handle_of(each));
      const bool is_hidden =
          !function && each.is_local && function.error().code == ErrorCode::kCorrupt;
      if (is_hidden)
        unreachable_.push_back(std::move(each.name));
      else
        functions_.push_back(KILN_TRY(std::move(function)));
    }
    if (functions_.empty() && !unreachable_.empty())
      return fail(ErrorCode::kUnavailable, "{}: {}", label_,
                  why_unreachable(unreachable_));
    return {};
  }
  for (const std::string& name : wanted) {
    const auto found = std::ranges::find(in_image, name, &EntryPoint::name);
    const EntryPoint known =
        found == in_image.end() ? EntryPoint{.name = name, .registers = {}} : *found;
    functions_.push_back(
        KILN_TRY(Function::resolve(*this, name, known.parameters, handle_of(known))));
  }
  return {};
}

Result<std::optional<Variable>> LoadedModule::variable(const std::string& name) const {
  const DriverTable& driver = context_->driver().table();
  const RelaxedCapture relaxed(driver);
  const ContextScope scope(*context_);
  KILN_TRY(scope.check(label_));
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  const CUresult result =
      driver.cuModuleGetGlobal(&address, &bytes, handle_, name.c_str());
  if (result == CUDA_ERROR_NOT_FOUND)
    return std::nullopt;
  KILN_TRY(driver_result(driver, result, "cuModuleGetGlobal",
                         fmt::format("variable {} of {}", name, label_)));
  return Variable{address, bytes};
}

LoadedModule::~LoadedModule() {
  if (handle_ == nullptr || !context_->is_of_this_process())
    return;
  const DriverTable& driver = context_->driver().table();
  const RelaxedCapture relaxed(driver);
  const ContextScope scope(*context_);
  if (scope.result() != CUDA_SUCCESS)
    log_failure(driver, scope.result(), scope.call(), label_);
  else
    log_failure(driver, driver.cuModuleUnload(handle_), "cuModuleUnload", label_);
}

const Function* LoadedModule::find(std::string_view name) const {
  const auto found = std::ranges::find(functions_, name, &Function::name);
  return found == functions_.end() ? nullptr : &*found;
}

}  // namespace kiln::device
