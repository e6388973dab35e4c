// Kiln's table of what fits what against the driver's own answers: an image of every
// architecture that an NVRTC here builds, given to the driver on every kind of device.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "device/compatibility.h"
#include "device/driver.h"
#include "tests/gpu/driver.h"
#include "tests/gpu/on_device.h"
#include "tests/support/nvrtc.h"

namespace kiln::gpu_test {
namespace {

using device::ArchSuffix;
using device::ImageKind;
using device::Target;

struct Counts {
  int loaded = 0;
  int refused = 0;
  int unjudged = 0;  // it fits the device, and the driver is older than the toolkit
};

class GpuImages : public testing::Test {
 protected:
  void SetUp() override {
    if (find_driver() == nullptr)
      GTEST_SKIP() << why_no_driver();
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no test sets it
    const char* const chosen = std::getenv("KILN_DRIVER");
    const auto opened = device::Driver::open(chosen == nullptr ? "" : chosen,
                                             LibraryPlaces::of_process());
    ASSERT_TRUE(opened && *opened);
    version_ = (*opened)->version();
    devices_ = (*opened)->devices().value();
    if (devices_.empty())
      GTEST_SKIP() << "the CUDA driver has no device";
    if (test::nvrtc_libraries().empty())
      GTEST_SKIP() << "no NVRTC on this machine";
  }

  void check(const Bytes& image, Target target, device::CudaVersion toolkit) {
    for (const Device& each : devices_) {
      const OnDevice scope(each.ordinal);
      CUmodule module = nullptr;
      const CUresult result = driver().cuModuleLoadData(&module, image.data());
      const bool loads = result == CUDA_SUCCESS;
      if (loads)
        must(driver().cuModuleUnload(module), "cuModuleUnload");
      const bool fits = device::runs_on(target, each.capability);
      if (fits && !device::accepted_by(version_, target.kind, toolkit)) {
        ++counts_.unjudged;
        continue;
      }
      EXPECT_EQ(loads, fits) << fmt::format(
          "{} on device {} ({}): Kiln says {}, the driver {}", to_string(target),
          each.ordinal, to_string(each.capability), fits ? "yes" : "no",
          static_cast<int>(result));
      ++(loads ? counts_.loaded : counts_.refused);
    }
  }

  device::CudaVersion version_;
  std::vector<Device> devices_;
  Counts counts_;
};

TEST_F(GpuImages, TheDriverTakesWhatFitsByKilnsTableAndRefusesTheRest) {
  constexpr const char* kSource =
      "extern \"C\" __global__ void k(float* p) { p[threadIdx.x] *= 2; }\n";
  for (const LibraryCandidate& library : test::nvrtc_libraries()) {
    SCOPED_TRACE(library.path.native());
    const test::Nvrtc nvrtc(library.path);
    ASSERT_TRUE(nvrtc.opened());
    const device::NvrtcFacts facts = nvrtc.facts();
    for (const ComputeCapability capability : facts.architectures) {
      for (const ArchSuffix suffix :
           {ArchSuffix::kNone, ArchSuffix::kA, ArchSuffix::kF}) {
        if (!supports(facts, {capability, suffix}))
          continue;
        for (const ImageKind kind : {ImageKind::kCubin, ImageKind::kPtx}) {
          const Target target{{capability, suffix}, kind};
          const Bytes image = nvrtc.compile(kSource, to_string(target));
          ASSERT_FALSE(image.empty()) << to_string(target);
          check(image, target, facts.version);
        }
      }
    }
  }
  fmt::print("loaded {}, refused {}, not judged (driver older than toolkit) {}\n",
             counts_.loaded, counts_.refused, counts_.unjudged);
}

}  // namespace
}  // namespace kiln::gpu_test
