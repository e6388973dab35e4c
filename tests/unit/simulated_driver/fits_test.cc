// Which images a driver takes by its version. Which devices they run on is held against
// Kiln's own table in unit/device/simulated_driver_test.cc.

#include <gtest/gtest.h>

#include "tests/unit/simulated_driver/api.h"
#include "tests/unit/simulated_driver/images.h"

namespace kiln::test {
namespace {

CUresult result_for(int driver_version, const Bytes& image) {
  const DriverUnderTest driver;
  EXPECT_EQ(driver.set_driver_version(driver_version), 0);
  driver.use();
  CUmodule module = nullptr;
  return driver.cuModuleLoadData(&module, image.data());
}

TEST(SimulatedFits, ACubinNeedsADriverOfItsToolkitsMajorVersion) {
  EXPECT_EQ(result_for(13000, cubin_for("sm_90", "13.0")), CUDA_SUCCESS);
  EXPECT_EQ(result_for(13000, cubin_for("sm_90", "13.2")), CUDA_SUCCESS);
  EXPECT_EQ(result_for(13000, cubin_for("sm_90", "12.4")), CUDA_SUCCESS);
  EXPECT_EQ(result_for(12000, cubin_for("sm_90", "12.9")), CUDA_SUCCESS);
  EXPECT_EQ(result_for(12090, cubin_for("sm_90", "13.0")),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(result_for(11080, cubin_for("sm_90", "12.0")),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST(SimulatedFits, PtxNeedsADriverAsNewAsItsToolkit) {
  struct Step {
    const char* ptx;
    int driver;
  };
  for (const Step& step :
       {Step{"9.0", 13000}, Step{"8.8", 12090}, Step{"8.7", 12080}, Step{"8.6", 12070},
        Step{"8.4", 12040}, Step{"8.3", 12030}, Step{"8.2", 12020}, Step{"8.1", 12010},
        Step{"8.0", 12000}, Step{"7.8", 11080}}) {
    const Bytes image = ptx_for("sm_90", step.ptx);
    EXPECT_EQ(result_for(step.driver, image), CUDA_SUCCESS) << step.ptx;
    EXPECT_EQ(result_for(step.driver - 10, image), CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
        << step.ptx;
  }
  EXPECT_EQ(result_for(13000, ptx_for("sm_90", "9.1")),
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(result_for(11000, ptx_for("sm_70", "6.0")), CUDA_SUCCESS);
}

TEST(SimulatedFits, ACubinThatNamesNoToolkitIsOfTheOneThatTheTestSays) {
  const Bytes image = MadeCubin{.arch = ""}.build();
  const DriverUnderTest driver;
  ASSERT_EQ(driver.set_driver_version(12040), 0);
  driver.use();
  CUmodule module = value_of(driver.cuModuleLoadData, image.data());
  ASSERT_EQ(driver.set_toolkit_version(13000), 0);
  EXPECT_EQ(driver.cuModuleLoadData(&module, image.data()),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
}

}  // namespace
}  // namespace kiln::test
