#include "toolchain/nvrtc_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/elf_builder.h"
#include "tests/support/temp_dir.h"

namespace kiln::device {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

class NvrtcFiles : public testing::Test {
 protected:
  [[nodiscard]] fs::path touch(const fs::path& relative) const {
    test::write_file(root_ / relative, {});
    return root_ / relative;
  }

  const test::TempDir dir_;
  const fs::path root_ = fs::canonical(dir_.path());
};

TEST_F(NvrtcFiles, BuiltinsAreThoseOfTheSameMajorVersion) {
  const fs::path nvrtc = touch("libnvrtc.so.12");
  std::ignore = touch("libnvrtc-builtins.so.13.0");
  EXPECT_EQ(builtins_beside(nvrtc, {}), std::nullopt);
  const fs::path own = touch("libnvrtc-builtins.so.12.9");
  std::ignore = touch("libnvrtc-builtins.alt.so.12.9");
  EXPECT_EQ(builtins_beside(nvrtc, {}), own);
}

TEST_F(NvrtcFiles, OfSeveralBuiltinsTheNewestUnlessTheVersionIsKnown) {
  const fs::path nvrtc = touch("libnvrtc.so.12");
  const fs::path older = touch("libnvrtc-builtins.so.12.9");
  const fs::path newer = touch("libnvrtc-builtins.so.12.10");
  EXPECT_EQ(builtins_beside(nvrtc, {}), newer);
  EXPECT_EQ(builtins_beside(nvrtc, CudaVersion{12, 9}), older);
  EXPECT_EQ(builtins_beside(nvrtc, CudaVersion{12, 8}), std::nullopt);
}

TEST_F(NvrtcFiles, AMinorInTheFileNameIsPreferred) {
  const fs::path nvrtc = touch("libnvrtc.so.12.4.127");
  const fs::path own = touch("libnvrtc-builtins.so.12.4");
  std::ignore = touch("libnvrtc-builtins.so.12.9");
  EXPECT_EQ(builtins_beside(nvrtc, {}), own);
}

TEST_F(NvrtcFiles, TheName11_2StandsForEvery11SinceThen) {
  const fs::path nvrtc = touch("libnvrtc.so.11.2");
  const fs::path builtins = touch("libnvrtc-builtins.so.11.8");
  EXPECT_EQ(builtins_beside(nvrtc, {}), builtins);
}

TEST_F(NvrtcFiles, BuiltinsAreResolved) {
  const fs::path nvrtc = touch("libnvrtc.so.13");
  const fs::path real = touch("real/libnvrtc-builtins.so.13.0.88");
  fs::create_symlink(real, root_ / "libnvrtc-builtins.so.13.0");
  EXPECT_EQ(builtins_beside(nvrtc, {}), real);
}

TEST_F(NvrtcFiles, AToolkitsHeadersLieBesideItsLibraries) {
  std::ignore = touch("cuda/include/cuda_fp16.h");
  std::ignore = touch("cuda/include/cccl/cub/cub.cuh");
  EXPECT_THAT(include_roots_of(touch("cuda/lib64/libnvrtc.so.13")),
              ElementsAre(root_ / "cuda/include", root_ / "cuda/include/cccl"));
}

TEST_F(NvrtcFiles, AWheelOfCuda13HasThemInTheSamePackage) {
  std::ignore = touch("nvidia/cu13/include/cuda_fp16.h");
  EXPECT_THAT(include_roots_of(touch("nvidia/cu13/lib/libnvrtc.so.13")),
              ElementsAre(root_ / "nvidia/cu13/include"));
}

TEST_F(NvrtcFiles, AWheelOfCuda12HasThemInItsNeighbour) {
  std::ignore = touch("nvidia/cuda_nvrtc/include/nvrtc.h");
  std::ignore = touch("nvidia/cuda_runtime/include/cuda_fp16.h");
  std::ignore = touch("nvidia/cuda_cccl/include/cub/cub.cuh");
  EXPECT_THAT(include_roots_of(touch("nvidia/cuda_nvrtc/lib/libnvrtc.so.12")),
              ElementsAre(root_ / "nvidia/cuda_runtime/include",
                          root_ / "nvidia/cuda_cccl/include"));
}

TEST_F(NvrtcFiles, ALibraryWithoutAToolkitHasNone) {
  EXPECT_THAT(include_roots_of(touch("usr/lib/libnvrtc.so.13")), IsEmpty());
}

}  // namespace
}  // namespace kiln::device
