#include <array>
#include <fstream>

#include "tests/unit/simulated_driver/api.h"
#include "tests/unit/simulated_driver/images.h"

namespace kiln::test {
namespace {

CUresult load(const DriverUnderTest& driver, CUlibrary& library, const Bytes& image) {
  return driver.cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr,
                                  nullptr, 0);
}

CUkernel kernel_of(const DriverUnderTest& driver, CUlibrary library) {
  const CUkernel kernel = value_of(driver.cuLibraryGetKernel, library, "k");
  return kernel;
}

TEST(SimulatedLibraries, LazyOnesAreLoadedWhereTheyAreAskedFor) {
  const DriverUnderTest driver("9.0,8.0");
  driver.use(1);
  driver.use(0);
  CUlibrary library = nullptr;
  ASSERT_EQ(load(driver, library, cubin_for("sm_90")), CUDA_SUCCESS);
  EXPECT_EQ(driver.loads(), 0U);
  const CUkernel kernel = kernel_of(driver, library);
  CUfunction function = value_of(driver.cuKernelGetFunction, kernel);
  EXPECT_EQ(driver.loads(), 1U);
  EXPECT_EQ(value_of(driver.cuKernelGetFunction, kernel), function);
  EXPECT_EQ(driver.loads(), 1U);
  driver.use(1);
  EXPECT_EQ(driver.cuKernelGetFunction(&function, kernel),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(driver.launch(reinterpret_cast<CUfunction>(kernel)),
            CUDA_ERROR_NO_BINARY_FOR_GPU)
      << "where a refusal must not surface first";
}

TEST(SimulatedLibraries, AnEagerOneOfOneArchitectureIsRefusedOnAMixedMachine) {
  const DriverUnderTest driver("9.0,8.0");
  ASSERT_EQ(driver.set_loading("eager"), 0);
  driver.use(1);
  driver.use(0);
  CUlibrary library = nullptr;
  EXPECT_EQ(load(driver, library, cubin_for("sm_90")), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(driver.alive(KILN_SIMULATED_LIBRARIES), 0U);
  EXPECT_EQ(driver.alive(KILN_SIMULATED_MODULES), 0U);
  EXPECT_EQ(load(driver, library, ptx_for("sm_80")), CUDA_SUCCESS);
  EXPECT_EQ(driver.alive(KILN_SIMULATED_MODULES), 2U);
}

TEST(SimulatedLibraries, AnEagerOneGoesIntoLaterContextsAndMayForbidThem) {
  const DriverUnderTest driver("9.0,9.0,8.0");
  ASSERT_EQ(driver.set_loading("eager"), 0);
  driver.use(0);
  CUlibrary library = nullptr;
  ASSERT_EQ(load(driver, library, cubin_for("sm_90")), CUDA_SUCCESS);
  EXPECT_EQ(driver.loads(), 1U);
  driver.use(1);
  EXPECT_EQ(driver.loads_on(1), 1U);
  CUcontext context = nullptr;
  EXPECT_EQ(driver.cuDevicePrimaryCtxRetain(&context, 2), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(driver.alive(KILN_SIMULATED_CONTEXTS), 2U);
  ASSERT_EQ(driver.cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuDevicePrimaryCtxRetain(&context, 2), CUDA_SUCCESS);
}

TEST(SimulatedLibraries, NeedNoContextUntilAKernelIsUsed) {
  const DriverUnderTest driver;
  ASSERT_EQ(driver.cuInit(0), CUDA_SUCCESS);
  CUlibrary library = nullptr;
  ASSERT_EQ(load(driver, library, cubin_for("sm_90")), CUDA_SUCCESS);
  const unsigned count = value_of(driver.cuLibraryGetKernelCount, library);
  ASSERT_EQ(count, 2U);
  std::array<CUkernel, 2> kernels{};
  ASSERT_EQ(driver.cuLibraryEnumerateKernels(kernels.data(), 2, library), CUDA_SUCCESS);
  EXPECT_EQ(kernels[0], kernel_of(driver, library));
  EXPECT_STREQ(value_of(driver.cuKernelGetName, kernels[1]), "plain");
  EXPECT_EQ(value_of(driver.cuKernelGetLibrary, kernels[1]), library);
  CUfunction function = nullptr;
  EXPECT_EQ(driver.cuKernelGetFunction(&function, kernels[0]),
            CUDA_ERROR_INVALID_CONTEXT);
  CUkernel none = nullptr;
  EXPECT_EQ(driver.cuLibraryGetKernel(&none, library, "none"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(load(driver, library, bytes_of(std::string_view("nothing\0", 8))),
            CUDA_ERROR_INVALID_IMAGE);
}

TEST(SimulatedLibraries, AnAttributeSetForADeviceHoldsInItsContexts) {
  const UsedDriver driver("9.0,9.0");
  CUlibrary library = nullptr;
  ASSERT_EQ(load(driver, library, cubin_for("sm_90")), CUDA_SUCCESS);
  const CUkernel kernel = kernel_of(driver, library);
  constexpr auto kDynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  ASSERT_EQ(driver.cuKernelSetAttribute(kDynamic, 100'000, kernel, 1), CUDA_SUCCESS);
  EXPECT_EQ(value_of(driver.cuKernelGetAttribute, kDynamic, kernel, 1), 100'000);
  const auto handle = reinterpret_cast<CUfunction>(kernel);
  EXPECT_EQ(driver.launch(handle, 1, 32, 100'000), CUDA_ERROR_INVALID_VALUE);
  driver.use(1);
  EXPECT_EQ(driver.launch(handle, 1, 32, 100'000), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuKernelSetAttribute(kDynamic, 50'000, kernel, 1), CUDA_SUCCESS);
  EXPECT_EQ(driver.launch(handle, 1, 32, 100'000), CUDA_ERROR_INVALID_VALUE);
}

TEST(SimulatedLibraries, HandlesAreStaleOnceTheyAreUnloaded) {
  const UsedDriver driver;
  CUlibrary library = nullptr;
  ASSERT_EQ(load(driver, library, cubin_for("sm_90")), CUDA_SUCCESS);
  const CUkernel kernel = kernel_of(driver, library);
  CUfunction function = nullptr;
  const CUmodule module = value_of(driver.cuLibraryGetModule, library);
  EXPECT_EQ(driver.cuModuleUnload(module), CUDA_ERROR_NOT_PERMITTED);
  ASSERT_EQ(driver.cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(driver.launch(function), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver.cuKernelGetFunction(&function, kernel), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver.cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
}

TEST(SimulatedLibraries, ComeFromFilesAndHaveVariablesAndParameters) {
  const UsedDriver driver;
  const auto path = driver.path().replace_extension(".cubin");
  CUlibrary library = nullptr;
  const auto load = [&] {
    return driver.cuLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0,
                                        nullptr, nullptr, 0);
  };
  EXPECT_EQ(load(), CUDA_ERROR_FILE_NOT_FOUND);
  const Bytes image = cubin_for("sm_90");
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(image.data()),
             static_cast<std::streamsize>(image.size()));
  ASSERT_EQ(load(), CUDA_SUCCESS);
  std::size_t bytes = 0;
  CUdeviceptr pointer = value_of(driver.cuLibraryGetGlobal, &bytes, library, "table");
  EXPECT_EQ(bytes, 8U);
  EXPECT_EQ(driver.cuLibraryGetGlobal(&pointer, &bytes, library, "nothing"),
            CUDA_ERROR_NOT_FOUND);
  const CUkernel kernel = value_of(driver.cuLibraryGetKernel, library, "k");
  std::size_t offset = 1;
  EXPECT_EQ(driver.cuKernelGetParamInfo(kernel, 0, &offset, &bytes), CUDA_SUCCESS);
  EXPECT_EQ(offset, 0U);
  EXPECT_EQ(driver.cuKernelGetParamInfo(kernel, 1, &offset, &bytes),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_NE(value_of(driver.cuModuleLoad, path.c_str()), nullptr);
}

}  // namespace
}  // namespace kiln::test
