#include "toolchain/nvrtc_files.h"

#include <fmt/format.h>

#include <fstream>
#include <tuple>
#include <vector>

#include "tests/support/elf_builder.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::device {
namespace {

class NvrtcFiles : public testing::Test {
 protected:
  [[nodiscard]] fs::path touch(const fs::path& relative) const {
    test::write_file(root_ / relative, {});
    return root_ / relative;
  }
  [[nodiscard]] static std::vector<fs::path> roots_of(const fs::path& nvrtc) {
    return include_roots_of({nvrtc, nvrtc});
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
  EXPECT_THAT(roots_of(touch("cuda/lib64/libnvrtc.so.13")),
              ElementsAre(root_ / "cuda/include", root_ / "cuda/include/cccl"));
}

TEST_F(NvrtcFiles, AWheelOfCuda13HasThemInTheSamePackage) {
  std::ignore = touch("nvidia/cu13/include/cuda_fp16.h");
  EXPECT_THAT(roots_of(touch("nvidia/cu13/lib/libnvrtc.so.13")),
              ElementsAre(root_ / "nvidia/cu13/include"));
}

TEST_F(NvrtcFiles, AWheelOfCuda12HasThemInItsNeighbour) {
  std::ignore = touch("nvidia/cuda_nvrtc/include/nvrtc.h");
  std::ignore = touch("nvidia/cuda_runtime/include/cuda_fp16.h");
  std::ignore = touch("nvidia/cuda_cccl/include/cub/cub.cuh");
  EXPECT_THAT(roots_of(touch("nvidia/cuda_nvrtc/lib/libnvrtc.so.12")),
              ElementsAre(root_ / "nvidia/cuda_runtime/include",
                          root_ / "nvidia/cuda_cccl/include",
                          root_ / "nvidia/cuda_nvrtc/include"));
}

TEST_F(NvrtcFiles, WheelsOfCuda12HaveThemInAllTheirNeighbours) {
  std::ignore = touch("nvidia/cuda_runtime/include/cuda_fp16.h");
  for (const char* const wheel : {"cuda_nvrtc", "curand", "cuda_nvcc"})
    std::ignore = touch(fmt::format("nvidia/{0}/include/{0}.h", wheel));
  std::ignore = touch("nvidia/cudnn/lib/libcudnn.so.9");
  EXPECT_THAT(roots_of(touch("nvidia/cuda_nvrtc/lib/libnvrtc.so.12")),
              ElementsAre(root_ / "nvidia/cuda_runtime/include",
                          root_ / "nvidia/cuda_nvcc/include",
                          root_ / "nvidia/cuda_nvrtc/include",
                          root_ / "nvidia/curand/include"));
}

TEST_F(NvrtcFiles, ATreeOfLinksHasThemBesideTheLink) {
  // Nix: a tree of links to packages; uv: each file is a link to that of its wheel.
  for (const char* const lib : {"merged/lib", "site/nvidia/cuda_nvrtc/lib"}) {
    const fs::path real = touch("store/nvrtc-only/lib/libnvrtc.so.12");
    fs::create_directories(root_ / lib);
    fs::create_symlink(real, root_ / lib / "libnvrtc.so.12");
  }
  std::ignore = touch("store/headers/include/cuda_fp16.h");
  fs::create_directory_symlink(root_ / "store/headers/include",
                               root_ / "merged/include");
  std::ignore = touch("site/nvidia/cuda_runtime/include/cuda_fp16.h");
  const fs::path real = root_ / "store/nvrtc-only/lib/libnvrtc.so.12";
  EXPECT_THAT(include_roots_of({real, root_ / "merged/lib/libnvrtc.so.12"}),
              ElementsAre(root_ / "store/headers/include"));
  EXPECT_THAT(
      include_roots_of({real, root_ / "site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"}),
      ElementsAre(root_ / "site/nvidia/cuda_runtime/include"));
}

TEST_F(NvrtcFiles, WithoutThemAToolkitOfTheSameMajorVersionHasThem) {
  const fs::path lone = touch("usr/lib/libnvrtc.so.12");
  for (const int major : {11, 12, 13}) {
    const auto folder = fmt::format("cuda-{}/include/", major);
    std::ignore = touch(folder + "cuda_fp16.h");
    std::ofstream(root_ / folder / "cuda.h")
        << "#ifdef A\n#define CUDA_VERSION " << major << "040\n#endif\n";
  }
  std::ignore = touch("cuda-none/include/cuda_fp16.h");
  HeaderSearch search{lone, lone, {}, {12, 4}};
  for (const char* const name : {"cuda-none", "cuda-11", "cuda-13", "cuda-12"})
    search.toolkits.push_back(root_ / name);
  EXPECT_THAT(include_roots_of(search), ElementsAre(root_ / "cuda-12/include"));
}

TEST_F(NvrtcFiles, APartOfThemIsTakenOnlyWhereNoToolkitThatIsNamedHasAll) {
  const fs::path torchs = touch("nvidia/cu13/lib/libnvrtc.so.13");
  std::ignore = touch("nvidia/cu13/include/cuda_fp16.h");
  for (const char* const file :
       {"cuda_fp16.h", "crt/mma.h", "cccl/cuda/std/version", "cuda.h"})
    std::ignore = touch(fmt::format("cuda/include/{}", file));
  HeaderSearch search{torchs, torchs, {root_ / "cuda"}, {13, 0}};
  const auto part = ElementsAre(root_ / "nvidia/cu13/include");
  EXPECT_THAT(include_roots_of(search), part) << "of no version";
  const auto say = [&](int version) {
    std::ofstream(root_ / "cuda/include/cuda.h") << "#define CUDA_VERSION " << version;
  };
  say(12080);
  EXPECT_THAT(include_roots_of(search), part) << "of another major version";
  say(13020);
  EXPECT_THAT(include_roots_of(search),
              ElementsAre(root_ / "cuda/include", root_ / "cuda/include/cccl"));
  fs::remove(root_ / "cuda/include/crt/mma.h");
  EXPECT_THAT(include_roots_of(search), part) << "neither is whole";
  // Wheels of CUDA 12 in the same environment are none of its.
  std::ignore = touch("nvidia/cuda_runtime/include/cuda_fp16.h");
  std::ignore = touch("nvidia/cuda_nvcc/include/crt/mma.h");
  EXPECT_THAT(include_roots_of(search), part);
}

TEST_F(NvrtcFiles, ALibraryWithoutAToolkitHasNone) {
  EXPECT_THAT(roots_of(touch("usr/lib/libnvrtc.so.13")), IsEmpty());
}

}  // namespace
}  // namespace kiln::device
