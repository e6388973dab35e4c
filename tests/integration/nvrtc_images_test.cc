// What the device module says of NVIDIA's real libraries and of what they compile.

#include <array>
#include <cstdio>
#include <map>

#include "device/compatibility.h"
#include "device/cubin.h"
#include "device/known_architectures.h"
#include "tests/support/nvrtc.h"
#include "tests/support/test.h"
#include "toolchain/nvrtc_files.h"
#include "toolchain/toolchain.h"
#include "util/elf.h"

namespace kiln::device {
namespace {

constexpr const char* kSource =
    "extern \"C\" __global__ void plain(float* p) { p[threadIdx.x] *= 2; }\n"
    "template <typename T> __global__ void shared(T* p) {\n"
    "  __shared__ T tile[64]; tile[threadIdx.x] = p[threadIdx.x]; __syncthreads();\n"
    "  p[threadIdx.x] = tile[63 - threadIdx.x];\n"
    "}\n"
    "template __global__ void shared<float>(float*);\n";
constexpr const char* kSharedName = "_Z6sharedIfEvPT_";

constexpr std::array kSuffixes{ArchSuffix::kNone, ArchSuffix::kA, ArchSuffix::kF};

std::string output_of(const std::string& command) {
  std::string output;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr)
    return output;
  std::array<char, 4096> chunk{};
  while (const std::size_t n = std::fread(chunk.data(), 1, chunk.size(), pipe))
    output.append(chunk.data(), n);
  ::pclose(pipe);
  return output;
}

class NvrtcImages : public testing::Test {
 protected:
  void SetUp() override {
    if (libraries_.empty())
      GTEST_SKIP() << "no NVRTC on this machine";
  }

  // Calls `check(nvrtc)` for each library found.
  template <typename Check>
  void for_each_nvrtc(const Check& check) const {
    for (const LibraryCandidate& library : libraries_) {
      SCOPED_TRACE(library.path.native());
      const test::Nvrtc nvrtc(library.path);
      ASSERT_TRUE(nvrtc.opened());
      check(nvrtc);
    }
  }

  const std::vector<LibraryCandidate> libraries_ = test::nvrtc_libraries();
};

TEST_F(NvrtcImages, BuildIdsOfTheLibrariesAreWhatReadelfSays) {
  if (output_of("readelf --version 2>/dev/null").empty())
    GTEST_SKIP() << "no readelf";
  for (const LibraryCandidate& library : libraries_) {
    const auto builtins = builtins_beside(library.path, std::nullopt);
    ASSERT_TRUE(builtins) << library.path;
    for (const auto& path : {library.path, *builtins}) {
      const auto id = read_build_id(path);
      ASSERT_TRUE(id) << id.error().message;
      const std::string notes = output_of("readelf -n '" + path.native() + "' 2>&1");
      // It gives up on notes that patchelf has moved, as in NVIDIA's wheel of 12.8.
      if (notes.find("invalid namesz") != std::string::npos)
        continue;
      EXPECT_THAT(notes, HasSubstr("Build ID: " + *id + "\n"));
    }
  }
}

TEST_F(NvrtcImages, TheTableOfSuffixesAgreesWithNvrtc) {
  for_each_nvrtc([](const test::Nvrtc& nvrtc) {
    const NvrtcFacts facts = nvrtc.facts();
    for (const KnownArchitecture& known : known_architectures()) {
      for (const ArchSuffix suffix : kSuffixes) {
        const Architecture architecture{known.capability, suffix};
        EXPECT_EQ(supports(facts, architecture),
                  !nvrtc.compile("", to_string(Target{architecture})).empty())
            << to_string(architecture);
      }
    }
    for (const ComputeCapability each : facts.architectures)
      EXPECT_TRUE(supports(facts, {each})) << to_string(each);
  });
}

TEST_F(NvrtcImages, EveryCubinTellsItsArchitectureSuffixAndEntryPoints) {
  for_each_nvrtc([](const test::Nvrtc& nvrtc) {
    const NvrtcFacts facts = nvrtc.facts();
    for (const ComputeCapability capability : facts.architectures) {
      for (const ArchSuffix suffix : kSuffixes) {
        const Target target{{capability, suffix}};
        if (!supports(facts, target.architecture))
          continue;
        SCOPED_TRACE(to_string(target));
        const Bytes image = nvrtc.compile(kSource, to_string(target));
        const CubinInfo info = read_cubin(image).value();
        EXPECT_EQ(info.capability, capability);
        EXPECT_EQ(info.suffix.value_or(suffix), suffix);
        ASSERT_EQ(info.entry_points.size(), 2U);
        const std::vector<std::string_view> expected{"plain", kSharedName};
        EXPECT_TRUE(check_image(image, target, expected));
        for (const EntryPoint& each : info.entry_points) {
          EXPECT_EQ(each.static_shared_bytes, each.name == kSharedName ? 256U : 0U);
          EXPECT_GT(each.registers.value_or(0), 0U);
          EXPECT_LT(each.registers.value_or(0), 64U);
        }
      }
    }
  });
}

// Every size that a parameter may have, on every architecture; the large one has a
// record of another kind and did not exist before 7.0.
TEST_F(NvrtcImages, EveryCubinTellsTheSizesOfItsParameters) {
  const std::string source =
      "struct Three { long long a; double b; int c; };\n"
      "struct alignas(16) Large { char bytes[5000]; };\n"
      "extern \"C\" __global__ void none() {}\n"
      "extern \"C\" __global__ void mixed(const float* p, signed char c, long long n,\n"
      "                                 float f, Three three, float* out) {\n"
      "  out[threadIdx.x] = p[n] * f + c + three.c;\n"
      "}\n"
      "extern \"C\" __global__ void unused(void* p, bool b, short s, float4 f) {}\n"
      "#if __CUDA_ARCH__ >= 700\n"
      "extern \"C\" __global__ void large(Large l, int* out) {\n"
      "  out[threadIdx.x] = l.bytes[threadIdx.x];\n"
      "}\n"
      "#endif\n";
  const std::map<std::string, std::vector<std::size_t>> expected{
      {"none", {}},
      {"mixed", {8, 1, 8, 4, 24, 8}},
      {"unused", {8, 1, 2, 16}},
      {"large", {5008, 8}}};
  for_each_nvrtc([&](const test::Nvrtc& nvrtc) {
    for (const ComputeCapability capability : nvrtc.facts().architectures) {
      const Target target{{capability}};
      SCOPED_TRACE(to_string(target));
      const Bytes image = nvrtc.compile(source, to_string(target));
      const CubinInfo info = read_cubin(image).value();
      EXPECT_EQ(info.entry_points.size(), capability.major < 7 ? 3U : 4U);
      for (const EntryPoint& each : info.entry_points) {
        ASSERT_TRUE(each.parameters) << each.name;
        EXPECT_EQ(*each.parameters, expected.at(each.name)) << each.name;
      }
    }
  });
}

TEST_F(NvrtcImages, NvrtcWritesTheSuffixIntoItsCubins) {
  for_each_nvrtc([](const test::Nvrtc& nvrtc) {
    const NvrtcFacts facts = nvrtc.facts();
    if (facts.version < CudaVersion{13, 0} || !supports(facts, {{9, 0}}))
      return;
    const Bytes specific = nvrtc.compile(kSource, "sm_90a");
    const Bytes plain = nvrtc.compile(kSource, "sm_90");
    EXPECT_EQ(read_cubin(specific)->suffix, ArchSuffix::kA);
    EXPECT_EQ(read_cubin(plain)->suffix, ArchSuffix::kNone);
    EXPECT_FALSE(check_image(specific, {{{9, 0}, ArchSuffix::kNone}}, {}));
    EXPECT_FALSE(check_image(plain, {{{9, 0}, ArchSuffix::kA}}, {}));
  });
}

TEST_F(NvrtcImages, PtxTellsItsTargetAndEntryPoints) {
  for_each_nvrtc([](const test::Nvrtc& nvrtc) {
    const NvrtcFacts facts = nvrtc.facts();
    for (const ArchSuffix suffix : kSuffixes) {
      const Architecture architecture{facts.architectures.back(), suffix};
      if (!supports(facts, architecture))
        continue;
      const Target target{architecture, ImageKind::kPtx};
      SCOPED_TRACE(to_string(target));
      const Bytes image = nvrtc.compile(kSource, to_string(target));
      const PtxInfo info = read_ptx(image).value();
      EXPECT_EQ(info.architecture, architecture);
      std::vector<std::string> names;
      for (const EntryPoint& entry : info.entry_points) names.push_back(entry.name);
      EXPECT_THAT(names, testing::UnorderedElementsAre("plain", kSharedName));
      EXPECT_FALSE(check_image(image, {{{7, 5}}, ImageKind::kPtx}, {}));
    }
  });
}

TEST_F(NvrtcImages, DiscoveryDescribesThisMachineWithoutOpeningAnything) {
  ToolchainSearch search;
  search.places = LibraryPlaces::of_process();
  std::size_t asked = 0;
  search.ask = [&](const auto&, const auto&) -> Result<NvrtcFacts> {
    ++asked;
    return NvrtcFacts{{13, 0}, {{9, 0}}};
  };
  const auto found = discover_toolchains(search).value();
  const auto libraries = find_libraries({"libnvrtc.so", {}, {}}, search.places).value();
  EXPECT_EQ(found.usable.size() + found.unusable.size(), libraries.size());
  EXPECT_EQ(asked, found.usable.size());
  for (const Toolchain& each : found.usable) {
    EXPECT_EQ(each.id.nvrtc.size(), 40U);
    EXPECT_EQ(each.id.builtins.size(), 40U);
    EXPECT_TRUE(each.nvrtc.is_absolute());
    for (const auto& root : each.include_roots)
      EXPECT_TRUE(std::filesystem::is_directory(root)) << root;
  }
}

}  // namespace
}  // namespace kiln::device
