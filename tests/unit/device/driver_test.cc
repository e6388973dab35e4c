#include "device/driver.h"

#include "device/devices.h"
#include "device/driver_table.h"
#include "tests/support/child_process.h"
#include "tests/support/elf_builder.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::device {
namespace {

TEST(Driver, ThatIsNowhereIsAValueAndNoError) {
  const auto driver = Driver::open({}, {});
  ASSERT_TRUE(driver) << driver.error().message;
  EXPECT_FALSE(driver->has_value());
}

TEST(Driver, ThatIsNowhereIsNotBlamedForAFork) {
  const auto devices = Devices::open(std::nullopt).value();
  test::ChildProcess child([&] {
    const std::string message = devices->find(0).error().message;
    return message.find("forked") != message.npos &&
                   message.find("open a service in the child") != message.npos &&
                   message.find("CUDA") == message.npos
               ? 0
               : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(Driver, ThatWasNamedAndIsNotThereIsAnError) {
  EXPECT_THAT(Driver::open("/nonexistent/libcuda.so.1", {}),
              test::IsError(ErrorCode::kUnavailable, HasSubstr("KILN_DRIVER")));
}

// Containers started without their GPUs have an empty libcuda.so.1.
TEST(Driver, ThatCannotBeOpenedIsAnErrorInTheLoadersWords) {
  const test::TempDir dir;
  LibraryPlaces places;
  places.loader_path = {dir.path()};
  for (const Bytes& content : {Bytes(), test::bytes_of("no library")}) {
    test::write_file(dir.path() / "libcuda.so.1", content);
    EXPECT_THAT(Driver::open({}, places),
                test::IsError(ErrorCode::kUnavailable,
                              HasSubstr("libcuda.so.1 cannot be used")));
  }
}

TEST(Driver, ALibraryThatIsNoDriverIsRefusedByTheFunctionItLacks) {
  LibraryPlaces places = LibraryPlaces::of_process();
  const auto libc = find_libraries({"libc.so.6", {}, {}}, places).value();
  ASSERT_FALSE(libc.empty());
  const auto driver = Driver::open(libc.front().path, {});
  ASSERT_FALSE(driver);
  EXPECT_THAT(driver.error().message, HasSubstr("it lacks cuInit"));
}

CUresult name_of(CUresult result, const char** out) {
  *out = result == CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : nullptr;
  return *out == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult text_of(CUresult result, const char** out) {
  *out =
      result == CUDA_ERROR_NO_DEVICE ? "no CUDA-capable device is detected" : nullptr;
  return *out == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

TEST(DriverError, NamesCallObjectNameNumberAndText) {
  DriverTable table;
  table.cuGetErrorName = name_of;
  table.cuGetErrorString = text_of;
  const Error known =
      driver_error(table, CUDA_ERROR_NO_DEVICE, "cuDeviceGet", "device 3").value();
  EXPECT_EQ(known.code, ErrorCode::kDevice);
  EXPECT_EQ(known.message,
            "cuDeviceGet, device 3: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device "
            "is detected");
  EXPECT_THAT(driver_error(table, CUDA_ERROR_UNKNOWN, "cuInit").value().message,
              HasSubstr("cuInit: an unknown error (999)"));
}

TEST(DriverError, EndsWithWhatCanBeDone) {
  DriverTable table;
  table.cuGetErrorName = name_of;
  table.cuGetErrorString = text_of;
  const auto message = [&](CUresult result) {
    return driver_error(table, result, "call").value().message;
  };
  EXPECT_THAT(message(CUDA_ERROR_OUT_OF_MEMORY),
              EndsWith("; free memory of the device, or load fewer kernels"));
  EXPECT_THAT(message(CUDA_ERROR_NOT_INITIALIZED),
              EndsWith("; if this process was forked after CUDA was started, start it "
                       "with exec instead"));
  EXPECT_THAT(message(CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
              EndsWith("or build with an older NVRTC (KILN_TOOLCHAIN)"));
  EXPECT_THAT(message(CUDA_ERROR_NO_BINARY_FOR_GPU),
              EndsWith("; the image is for another architecture: build it for this "
                       "device"));
  EXPECT_THAT(message(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH),
              EndsWith("are of different versions: restart the machine"));
  EXPECT_THAT(
      message(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
      EndsWith(
          "; a stream is being captured: make this call before the capture begins"));
  for (const CUresult lost : {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED,
                              CUDA_ERROR_ASSERT, CUDA_ERROR_ECC_UNCORRECTABLE})
    EXPECT_THAT(message(lost),
                HasSubstr("only a new process can use the device again"));
}

}  // namespace
}  // namespace kiln::device
