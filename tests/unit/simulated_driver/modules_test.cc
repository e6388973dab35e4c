#include <array>
#include <cstdint>
#include <vector>

#include "tests/unit/simulated_driver/api.h"
#include "tests/unit/simulated_driver/images.h"

namespace kiln::test {
namespace {

TEST(SimulatedModules, GiveTheirFunctionsByNameAndByCount) {
  const UsedDriver driver;
  const CUmodule module = driver.load(cubin_for("sm_90"));
  const unsigned count = value_of(driver.cuModuleGetFunctionCount, module);
  ASSERT_EQ(count, 2U);
  std::vector<CUfunction> functions(count);
  ASSERT_EQ(driver.cuModuleEnumerateFunctions(functions.data(), count, module),
            CUDA_SUCCESS);
  EXPECT_STREQ(value_of(driver.cuFuncGetName, functions[1]), "plain");
  CUfunction found = value_of(driver.cuModuleGetFunction, module, "k");
  EXPECT_EQ(found, functions[0]);
  EXPECT_EQ(value_of(driver.cuFuncGetModule, found), module);
  for (const char* other : {"helper", "elsewhere", "table", ""})
    EXPECT_EQ(driver.cuModuleGetFunction(&found, module, other), CUDA_ERROR_NOT_FOUND);
}

// What the real driver does by name is not known; a program must not rely on it.
TEST(SimulatedModules, AKernelOfLocalBindingIsEnumeratedAndNotFoundByName) {
  const UsedDriver driver;
  const CUmodule module = driver.load(MadeCubin{.local_kernel = "own"}.build());
  const unsigned count = value_of(driver.cuModuleGetFunctionCount, module);
  ASSERT_EQ(count, 3U);
  std::vector<CUfunction> functions(count);
  EXPECT_EQ(driver.cuModuleEnumerateFunctions(functions.data(), count, module),
            CUDA_SUCCESS);
  EXPECT_STREQ(value_of(driver.cuFuncGetName, functions[2]), "own");
  CUfunction found = nullptr;
  EXPECT_EQ(driver.cuModuleGetFunction(&found, module, "own"), CUDA_ERROR_NOT_FOUND);
}

TEST(SimulatedModules, AVariableOfLocalBindingIsFoundByName) {
  const UsedDriver driver;
  const CUmodule module = driver.load(MadeCubin{}.build());
  std::size_t bytes = 0;
  EXPECT_NE(value_of(driver.cuModuleGetGlobal, &bytes, module, "own_table"), 0U);
  EXPECT_EQ(bytes, 4U);
}

TEST(SimulatedModules, AFunctionTellsItsParametersOneByOne) {
  const UsedDriver driver;
  Bytes ptx = bytes_of(
      ".version 9.0\n.target sm_90\n.visible .entry k(\n"
      ".param .u64 .ptr .align 1 k_param_0,\n.param .u8 k_param_1,\n"
      ".param .align 8 .b8 k_param_2[24],\n.param .f32 k_param_3\n)\n"
      "{\n.param .b64 none;\nret;\n}\n");
  ptx.push_back(std::byte{0});
  for (const Bytes& image : {MadeCubin{.parameters = {8, 8, 24, 4}}.build(), ptx}) {
    const bool is_ptx = image == ptx;
    const CUfunction function = driver.load(image, "k");
    std::vector<std::size_t> told;
    std::size_t offset = 0;
    std::size_t size = 0;
    while (driver.cuFuncGetParamInfo(function, told.size() / 2, &offset, &size) ==
           CUDA_SUCCESS)
      told.insert(told.end(), {offset, size});
    EXPECT_THAT(told, testing::ElementsAre(0, 8, 8, is_ptx ? 1 : 8, 16, 24, 40, 4));
    EXPECT_EQ(driver.cuFuncGetParamInfo(function, 4, &offset, nullptr),
              CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(driver.cuFuncGetParamInfo(nullptr, 0, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
}

TEST(SimulatedModules, AFunctionTellsWhatTheImageSaysOfIt) {
  const UsedDriver driver;
  const CUfunction function = driver.load(cubin_for("sm_90a"), "k");
  const auto get = [&](CUfunction_attribute which) {
    const int value = value_of(driver.cuFuncGetAttribute, which, function);
    return value;
  };
  EXPECT_EQ(get(CU_FUNC_ATTRIBUTE_NUM_REGS), 24);
  EXPECT_EQ(get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 512);
  EXPECT_EQ(get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 256);
  EXPECT_EQ(get(CU_FUNC_ATTRIBUTE_BINARY_VERSION), 90);
  EXPECT_EQ(get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 48 * 1024 - 512);
}

TEST(SimulatedModules, WithoutAContextNothingIsLoaded) {
  const DriverUnderTest driver;
  ASSERT_EQ(driver.cuInit(0), CUDA_SUCCESS);
  const Bytes image = cubin_for("sm_90");
  CUmodule module = nullptr;
  EXPECT_EQ(driver.cuModuleLoadData(&module, image.data()), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver.loads(), 0U);
}

TEST(SimulatedModules, AnImageThatIsNoneIsRefusedWithItsOwnError) {
  const UsedDriver driver;
  CUmodule module = nullptr;
  EXPECT_EQ(driver.cuModuleLoadData(&module, "no image"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(driver.cuModuleLoadData(&module, ".version 9.0\n.target nothing\n"),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(driver.cuModuleLoadData(&module, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuModuleLoadData(nullptr, "no image"), CUDA_ERROR_INVALID_VALUE);
}

TEST(SimulatedModules, TheErrorLogSaysWhyAndHowLongItIs) {
  const UsedDriver driver;
  const Bytes image = cubin_for("sm_80");
  std::array<char, 256> log{};
  std::array options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  // NOLINTBEGIN(performance-no-int-to-ptr): how the driver takes option values
  std::array<void*, 2> values{log.data(),
                              reinterpret_cast<void*>(std::uintptr_t{log.size()})};
  CUmodule module = nullptr;
  EXPECT_EQ(driver.cuModuleLoadDataEx(&module, image.data(), 2, options.data(),
                                      values.data()),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_THAT(log.data(), HasSubstr("sm_80 code does not run on 9.0"));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values[1]),
            std::string(log.data()).size());
  std::array<char, 4> small{};
  values = {small.data(), reinterpret_cast<void*>(std::uintptr_t{small.size()})};
  // NOLINTEND(performance-no-int-to-ptr)
  EXPECT_EQ(driver.cuModuleLoadDataEx(&module, image.data(), 2, options.data(),
                                      values.data()),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_STREQ(small.data(), "sm_");
  EXPECT_EQ(driver.cuModuleLoadDataEx(&module, image.data(), 2, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

TEST(SimulatedModules, HandlesAreStaleOnceTheyAreUnloaded) {
  const UsedDriver driver;
  const CUmodule module = driver.load(cubin_for("sm_90"));
  CUfunction function = value_of(driver.cuModuleGetFunction, module, "k");
  ASSERT_EQ(driver.cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  const CUmodule next = driver.load(cubin_for("sm_90"));
  EXPECT_NE(next, module) << "no handle is used twice";
  EXPECT_EQ(driver.cuModuleGetFunction(&function, module, "k"),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver.launch(function), CUDA_ERROR_INVALID_HANDLE);
  int value = 0;
  EXPECT_EQ(driver.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver.cuModuleUnload(nullptr), CUDA_ERROR_INVALID_HANDLE);
}

TEST(SimulatedModules, AreUnloadedInTheirOwnContextOnly) {
  const UsedDriver driver("9.0,9.0");
  const CUmodule module = driver.load(cubin_for("sm_90"));
  driver.use(1);
  EXPECT_EQ(driver.cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  driver.use(0);
  EXPECT_EQ(driver.cuModuleUnload(module), CUDA_SUCCESS);
}

TEST(SimulatedModules, LoadsAreCountedByDevice) {
  const UsedDriver driver("9.0,8.0");
  driver.load(cubin_for("sm_90"));
  driver.load(ptx_for("sm_80"));
  driver.use(1);
  driver.load(cubin_for("sm_80"));
  EXPECT_EQ(driver.loads(), 3U);
  EXPECT_EQ(driver.loads_on(0), 2U);
  EXPECT_EQ(driver.loads_on(1), 1U);
  EXPECT_EQ(driver.loads_on(2), 0U);
  EXPECT_EQ(driver.calls("cuModuleLoadData"), 3U);
}

TEST(SimulatedModules, VariablesAreMemoryWithTheirContents) {
  const UsedDriver driver;
  const CUmodule module = driver.load(cubin_for("sm_90"));
  std::size_t size = 0;
  CUdeviceptr pointer = value_of(driver.cuModuleGetGlobal, &size, module, "table");
  ASSERT_EQ(size, 8U);
  std::string text(size, '\0');
  ASSERT_EQ(driver.cuMemcpyDtoH(text.data(), pointer, size), CUDA_SUCCESS);
  EXPECT_EQ(text, "contents");
  EXPECT_EQ(driver.cuModuleGetGlobal(&pointer, &size, module, "none"),
            CUDA_ERROR_NOT_FOUND);
}

TEST(SimulatedModules, LazyFunctionsAreLoadedByTheirFirstLaunch) {
  for (const char* mode : {"lazy", "eager"}) {
    const bool is_eager = mode == std::string("eager");
    const DriverUnderTest driver;
    ASSERT_EQ(driver.set_loading(mode), 0);
    driver.use();
    EXPECT_EQ(value_of(driver.cuModuleGetLoadingMode),
              is_eager ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING);
    const CUfunction function = driver.load(cubin_for("sm_90"), "k");
    CUfunctionLoadingState state = value_of(driver.cuFuncIsLoaded, function);
    EXPECT_EQ(state, is_eager ? CU_FUNCTION_LOADING_STATE_LOADED
                              : CU_FUNCTION_LOADING_STATE_UNLOADED);
    ASSERT_EQ(driver.launch(function), CUDA_SUCCESS);
    ASSERT_EQ(driver.cuFuncIsLoaded(&state, function), CUDA_SUCCESS);
    EXPECT_EQ(state, CU_FUNCTION_LOADING_STATE_LOADED);
  }
}

}  // namespace
}  // namespace kiln::test
