// The fixture of the tests of launching.

#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "device/launch.h"
#include "tests/support/test.h"
#include "tests/unit/device/loading.h"

namespace kiln::device {

/// A kernel "k" on each of two devices. It takes one pointer.
class Launches : public testing::Test {
 protected:
  /// On the first device, with the right argument.
  Result<void> run(const Geometry& geometry = {}, CUstream stream = nullptr) const {
    return run(first(), geometry, stream);
  }

  Result<void> run(const Function& function, const Geometry& geometry,
                   CUstream stream = nullptr) const {
    std::array<void*, 1> arguments{&pointer_};
    constexpr std::array<std::size_t, 1> kSizes{sizeof(pointer_)};
    return launch(function, geometry, stream, arguments, kSizes);
  }

  /// The message of a launch that was refused before the driver saw it.
  std::string refusal(const Geometry& geometry, CUstream stream = nullptr) const {
    return refusal(run(geometry, stream));
  }

  std::string refusal(const Result<void>& launched) const {
    EXPECT_FALSE(launched);
    if (launched)
      return "";
    EXPECT_EQ(launched.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(calls(), 0U) << "the driver saw it";
    EXPECT_THAT(launched.error().message,
                testing::HasSubstr("kernel k of softmax (key 0123"));
    EXPECT_THAT(launched.error().message,
                testing::HasSubstr("on device 0 (Simulated 9.0)"));
    return launched.error().message;
  }

  [[nodiscard]] unsigned long calls() const {
    return simulated_.calls("cuLaunchKernel") + simulated_.calls("cuLaunchKernelEx");
  }

  [[nodiscard]] const Function& first() const { return *modules_[0]->find("k"); }
  [[nodiscard]] const Function& second() const { return *modules_[1]->find("k"); }
  [[nodiscard]] CUcontext context(std::size_t device) const {
    return modules_[device]->context().handle();
  }

  const test::SimulatedDriver simulated_{"9.0,8.6"};
  std::vector<std::shared_ptr<const LoadedModule>> modules_{
      test::load_cubin(test::context_of(simulated_, 0)).value(),
      test::load_cubin(test::context_of(simulated_, 1), {.sm = 86, .arch = "sm_86"})
          .value()};
  mutable std::uint64_t pointer_ = 0;
};

}  // namespace kiln::device
