// From a simulated driver to a loaded kernel, for the tests of loading and launching.

#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "device/driver.h"
#include "device/module.h"
#include "device/primary_context.h"
#include "tests/support/simulated_driver.h"
#include "tests/unit/simulated_driver/images.h"

namespace kiln::test {

inline constexpr std::string_view kKey = "0123456789abcdef0123456789abcdef";

inline std::shared_ptr<const device::PrimaryContext> context_of(
    const SimulatedDriver& simulated, std::size_t ordinal = 0) {
  const auto driver = device::Driver::open(simulated.path(), {}).value().value();
  return device::PrimaryContext::retain(driver, driver.devices().value().at(ordinal))
      .value();
}

/// `bytes`, which must outlive it, is for "sm_90a" or "compute_90".
inline device::Image image_of(const Bytes& bytes, const std::string& target,
                              device::CudaVersion toolkit = {13, 0}) {
  const bool is_ptx = target.starts_with("compute_");
  return {.bytes = bytes,
          .target = {device::parse_architecture(target).value(),
                     is_ptx ? device::ImageKind::kPtx : device::ImageKind::kCubin},
          .toolkit = toolkit,
          .label = "softmax",
          .key = std::string(kKey),
          .entry_points = {"k", "plain"}};
}

using LoadResult = Result<std::shared_ptr<const device::LoadedModule>>;

/// The made cubin with kernels "k" and "plain".
inline LoadResult load_cubin(
    const std::shared_ptr<const device::PrimaryContext>& context,
    const MadeCubin& made = {}) {
  const Bytes bytes = made.build();
  return device::LoadedModule::load(context, image_of(bytes, made.arch));
}

inline LoadResult load_ptx(const std::shared_ptr<const device::PrimaryContext>& context,
                           const std::string& version = "9.0") {
  const Bytes bytes = ptx_for("sm_90", version);
  return device::LoadedModule::load(context, image_of(bytes, "compute_90"));
}

inline CUcontext current_context(const SimulatedDriver& simulated) {
  CUcontext current = nullptr;
  simulated.find<decltype(::cuCtxGetCurrent)>("cuCtxGetCurrent")(&current);
  return current;
}

/// Nullptr for none.
inline void make_current(const SimulatedDriver& simulated, CUcontext context) {
  EXPECT_EQ(simulated.find<decltype(::cuCtxSetCurrent)>("cuCtxSetCurrent")(context),
            CUDA_SUCCESS);
}

inline CUstream stream_of(const SimulatedDriver& simulated, CUcontext context) {
  const CUcontext before = current_context(simulated);
  make_current(simulated, context);
  CUstream stream = nullptr;
  EXPECT_EQ(simulated.find<decltype(::cuStreamCreate)>("cuStreamCreate")(
                &stream, CU_STREAM_NON_BLOCKING),
            CUDA_SUCCESS);
  make_current(simulated, before);
  return stream;
}

}  // namespace kiln::test
