// Folders with a real libcudnn.so.9 that cannot be used: it ends the process that calls
// it.

#pragma once

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/paths.h"

namespace kiln::test {

enum class CudnnPart {
  kMissing,  // unless the loader finds one elsewhere
  kEmpty,    // a library without one of its symbols
};

/// Makes `folder` with a copy of the library `cudnn`, and returns the copy's path.
inline std::filesystem::path incomplete_cudnn(const std::filesystem::path& folder,
                                              const std::filesystem::path& cudnn,
                                              CudnnPart graph) {
  std::filesystem::create_directories(folder);
  const auto copy = folder / "libcudnn.so.9";
  EXPECT_TRUE(std::filesystem::copy_file(cudnn, copy));
  if (graph == CudnnPart::kEmpty) {
    EXPECT_TRUE(std::filesystem::copy_file(paths::kNoDeviceDriver,
                                           folder / "libcudnn_graph.so.9"));
  }
  return copy;
}

}  // namespace kiln::test
