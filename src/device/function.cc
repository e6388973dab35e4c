#include "device/function.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "device/driver_table.h"
#include "device/module.h"
#include "util/try.h"

namespace kiln::device {
namespace {

const DriverTable& driver_of(const LoadedModule& module) {
  return module.context().driver().table();
}

Result<CUfunction> find_in(const LoadedModule& module, const std::string& name,
                           CUfunction enumerated) {
  CUfunction handle = nullptr;
  const DriverTable& driver = driver_of(module);
  const CUresult result =
      driver.cuModuleGetFunction(&handle, module.handle(), name.c_str());
  if (result == CUDA_ERROR_NOT_FOUND && enumerated != nullptr)
    return enumerated;
  if (result == CUDA_ERROR_NOT_FOUND)
    return fail(ErrorCode::kCorrupt, "the driver finds no kernel {} in {}", name,
                module.label());
  KILN_TRY(driver_result(driver, result, "cuModuleGetFunction",
                         fmt::format("kernel {} of {}", name, module.label())));
  return handle;
}

// Reads one parameter after the other until there is none. The sizes are optional: any
// other result of the driver means that they are not known.
ParameterSizes ask_for_parameters(const DriverTable& driver, CUfunction function) {
  if (driver.cuFuncGetParamInfo == nullptr)
    return std::nullopt;
  std::vector<std::size_t> sizes;
  for (;;) {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    const CUresult result =
        driver.cuFuncGetParamInfo(function, sizes.size(), &offset, &bytes);
    if (result == CUDA_ERROR_INVALID_VALUE)
      return sizes;
    if (result != CUDA_SUCCESS)
      return std::nullopt;
    sizes.push_back(bytes);
  }
}

Result<FunctionAttributes> ask_for_attributes(const Function& function) {
  const LoadedModule& module = function.module();
  const DriverTable& driver = driver_of(module);
  const auto ask = [&](CUfunction_attribute which) -> Result<std::uint32_t> {
    int value = 0;
    KILN_TRY(driver_result(
        driver, driver.cuFuncGetAttribute(&value, which, function.handle()),
        "cuFuncGetAttribute",
        fmt::format("attribute {} of kernel {} of {}", static_cast<int>(which),
                    function.name(), module.label())));
    return static_cast<std::uint32_t>(std::max(0, value));
  };
  FunctionAttributes attributes;
  attributes.registers = KILN_TRY(ask(CU_FUNC_ATTRIBUTE_NUM_REGS));
  attributes.local_bytes = KILN_TRY(ask(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
  attributes.constant_bytes = KILN_TRY(ask(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES));
  attributes.static_shared_bytes = KILN_TRY(ask(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  attributes.max_threads_per_block =
      KILN_TRY(ask(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  const std::uint32_t limit = module.context().limits().shared_optin_bytes;
  attributes.max_dynamic_shared_bytes =
      limit - std::min(limit, attributes.static_shared_bytes);
  return attributes;
}

}  // namespace

Function::Function(const LoadedModule& module, std::string name, CUfunc_st* handle,
                   ParameterSizes parameters)
    : module_(module),
      name_(std::move(name)),
      handle_(handle),
      parameters_(std::move(parameters)) {}

Function::Function(Function&& other) noexcept
    : module_(other.module_),
      name_(std::move(other.name_)),
      handle_(other.handle_),
      parameters_(std::move(other.parameters_)),
      attributes_(other.attributes_),
      has_large_shared_memory_(other.has_large_shared_memory_.load()),
      has_large_clusters_(other.has_large_clusters_.load()) {}

Result<Function> Function::resolve(const LoadedModule& module, std::string name,
                                   ParameterSizes parameters, CUfunc_st* enumerated) {
  const CUfunction handle = KILN_TRY(find_in(module, name, enumerated));
  if (!parameters)
    parameters = ask_for_parameters(driver_of(module), handle);
  Function function(module, std::move(name), handle, std::move(parameters));
  function.attributes_ = KILN_TRY(ask_for_attributes(function));
  return function;
}

Result<void> Function::allow_large_shared_memory() const {
  return allow(has_large_shared_memory_,
               CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
               attributes_.max_dynamic_shared_bytes);
}

Result<void> Function::allow_large_clusters() const {
  return allow(has_large_clusters_, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
               1);
}

Result<void> Function::allow(std::atomic<bool>& is_allowed, int attribute,
                             std::uint32_t value) const {
  if (is_allowed.load(std::memory_order_acquire))
    return {};
  const DriverTable& driver = driver_of(module_);
  const auto which = static_cast<CUfunction_attribute>(attribute);
  KILN_TRY(driver_result(
      driver, driver.cuFuncSetAttribute(handle_, which, static_cast<int>(value)),
      "cuFuncSetAttribute",
      fmt::format("attribute {} of kernel {} of {}", attribute, name_,
                  module_.label())));
  is_allowed.store(true, std::memory_order_release);
  return {};
}

}  // namespace kiln::device
