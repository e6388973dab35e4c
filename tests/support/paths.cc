#include "tests/support/paths.h"

namespace kiln::test::paths {

const char* const kEmbed = KILN_TEST_EMBED;
const char* const kFakeNvrtc = KILN_TEST_FAKE_NVRTC;
const char* const kPreload = KILN_TEST_PRELOAD;
const char* const kProgram = KILN_TEST_PROGRAM;
const char* const kHangingDriver = KILN_TEST_HANGING_DRIVER;
const char* const kSettingsProbe = KILN_TEST_SETTINGS_PROBE;
const char* const kSimulatedDriver = KILN_TEST_SIMULATED_DRIVER;

#ifdef KILN_TEST_PLAN_WORKER
const char* const kNoDeviceDriver = KILN_TEST_NO_DEVICE_DRIVER;
const char* const kPlanWorker = KILN_TEST_PLAN_WORKER;
const char* const kSimulatedCudnn = KILN_TEST_SIMULATED_CUDNN;
#endif

std::string source(std::string_view path) {
  return std::string(KILN_TEST_SOURCE_DIR "/").append(path);
}
std::string built(std::string_view path) {
  return std::string(KILN_TEST_BUILD_DIR "/").append(path);
}

}  // namespace kiln::test::paths
