// Jobs for the tests of the compile worker, and the NVRTCs they go to.

#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "compile/job.h"
#include "device/nvrtc_files.h"
#include "tests/support/kernel_sources.h"
#include "util/library_search.h"

namespace kiln::test {

/// The NVRTC of this machine: KILN_NVRTC, else the first that the search finds; empty
/// paths where there is none, and then a test that needs one skips itself.
inline compile::NvrtcPaths real_nvrtc() {
  const char* const given = std::getenv("KILN_NVRTC");
  const auto found = find_libraries({.name = "libnvrtc.so",
                                     .explicit_path = given == nullptr ? "" : given,
                                     .explicit_origin = "KILN_NVRTC"},
                                    LibraryPlaces::of_process());
  if (!found || found->empty())
    return {};
  const auto& path = found->front().path;
  return {.nvrtc = path,
          .builtins = device::builtins_beside(path, std::nullopt).value_or("")};
}

inline compile::CompileJob job_for(const compile::NvrtcPaths& nvrtc, std::string source,
                                   device::Target target = {
                                       .architecture = {{8, 0}},
                                       .kind = device::ImageKind::kCubin}) {
  compile::CompileJob job;
  job.label = "test";
  job.source = std::move(source);
  job.options = {"--gpu-architecture=" + device::to_string(target)};
  job.nvrtc = nvrtc;
  job.target = target;
  return job;
}

#ifdef KILN_TEST_FAKE_NVRTC
inline compile::NvrtcPaths fake_nvrtc() {
  return {.nvrtc = KILN_TEST_FAKE_NVRTC, .builtins = {}};
}
#endif

}  // namespace kiln::test
