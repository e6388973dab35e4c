// The whole table of what runs where, written out by hand and asked through the ABI.

#include <gtest/gtest.h>

#include <array>
#include <string_view>

#include "tests/unit/simulated_driver/api.h"
#include "tests/unit/simulated_driver/images.h"

namespace kiln::test {
namespace {

constexpr std::string_view kDevices =
    "7.0,7.5,8.0,8.6,8.7,8.9,9.0,10.0,10.3,11.0,12.0,12.1";

// A column a device, in kDevices' order; y runs, . is refused.
struct Row {
  const char* arch;
  std::string_view cubin;
  std::string_view ptx;
};

constexpr std::array kRows{
    //  70 75 80 86 87 89 90 100 103 110 120 121
    Row{"sm_70", "yy..........", "yyyyyyyyyyyy"},
    Row{"sm_72", "............", ".yyyyyyyyyyy"},
    Row{"sm_75", ".y..........", ".yyyyyyyyyyy"},
    Row{"sm_80", "..yy.y......", "..yyyyyyyyyy"},
    Row{"sm_86", "...y.y......", "...yyyyyyyyy"},
    Row{"sm_87", "....y.......", "....yyyyyyyy"},
    Row{"sm_89", ".....y......", ".....yyyyyyy"},
    Row{"sm_90", "......y.....", "......yyyyyy"},
    Row{"sm_90a", "......y.....", "......y....."},
    Row{"sm_100", ".......yy...", ".......yyyyy"},
    Row{"sm_100a", ".......y....", ".......y...."},
    Row{"sm_100f", ".......yy...", ".......yy..."},
    Row{"sm_101", "............", "........yyyy"},
    Row{"sm_103", "........y...", "........yyyy"},
    Row{"sm_103a", "........y...", "........y..."},
    Row{"sm_103f", "........y...", "........y..."},
    Row{"sm_110", ".........y..", ".........yyy"},
    Row{"sm_110a", ".........y..", ".........y.."},
    Row{"sm_110f", ".........y..", ".........y.."},
    Row{"sm_120", "..........yy", "..........yy"},
    Row{"sm_120a", "..........y.", "..........y."},
    Row{"sm_120f", "..........yy", "..........yy"},
    Row{"sm_121", "...........y", "...........y"},
    Row{"sm_121a", "...........y", "...........y"},
    Row{"sm_121f", "...........y", "...........y"},
};

TEST(SimulatedFits, EveryTargetOnEveryDeviceIsAsTheTableSays) {
  const DriverUnderTest driver{std::string(kDevices)};
  ASSERT_EQ(driver.cuInit(0), CUDA_SUCCESS);
  const int devices = value_of(driver.cuDeviceGetCount);
  ASSERT_EQ(devices, 12);
  for (int device = 0; device < devices; ++device) {
    driver.use(device);
    for (const Row& row : kRows) {
      for (const bool is_ptx : {false, true}) {
        const Bytes image = is_ptx ? ptx_for(row.arch) : cubin_for(row.arch);
        const char expected =
            (is_ptx ? row.ptx : row.cubin)[static_cast<std::size_t>(device)];
        CUmodule module = nullptr;
        EXPECT_EQ(driver.cuModuleLoadData(&module, image.data()),
                  expected == 'y' ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU)
            << row.arch << (is_ptx ? " PTX" : " cubin") << " on device " << device;
      }
    }
  }
}

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
