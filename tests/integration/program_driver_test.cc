// --driver: what is built is for the driver of a job, not for that of this machine.

#include <string>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

class ProgramDriverTest : public testing::Test {
 protected:
  using Arguments = test::KilnProgram::Arguments;

  test::KilnProgram kiln_;
  const std::string source_ = kiln_.write("k.cu", test::kTinySource);
  const Arguments compile_{"compile", source_, "--arch", "9.0", "--driver"};
};

/// As uv installs wheels with --link-mode symlink: a link for each file, and the files
/// of each wheel in another folder.
TEST_F(ProgramDriverTest, TheHeadersOfWheelsForCuda12AreFoundThroughLinksToTheirFiles) {
  const fs::path wheels = test::paths::source(".deps/nvrtc-12/nvidia");
  if (!fs::exists(wheels / "cuda_runtime"))
    GTEST_SKIP() << "no wheels for CUDA 12 here";
  const fs::path site = kiln_.folder() / "site-packages/nvidia";
  const fs::path store = kiln_.folder() / "store";
  fs::create_directories(store);
  for (const auto& wheel : fs::directory_iterator(wheels)) {
    if (!wheel.is_directory())
      continue;
    const fs::path name = wheel.path().filename();
    const fs::path kept = store / ("archive-of-" + name.native());
    fs::create_symlink(wheel.path(), kept);
    for (const auto& each : fs::recursive_directory_iterator(wheel.path())) {
      const fs::path path = each.path().lexically_relative(wheel.path());
      if (each.is_directory())
        continue;
      fs::create_directories((site / name / path).parent_path());
      fs::create_symlink(kept / path, site / name / path);
    }
  }
  for (const char* const variable : {"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"})
    kiln_.unset(variable);
  kiln_.set("KILN_NVRTC", (site / "cuda_nvrtc/lib/libnvrtc.so.12").native());
  const auto source = kiln_.write(
      "headers.cu",
      "#include <cuda_fp16.h>\n#include <cuda/std/cstdint>\nextern \"C\" __global__ "
      "void k(__half* x) { *x = __float2half(cuda::std::uint32_t{2}); }\n");
  EXPECT_EQ(kiln_.json_of({"compile", source, "--arch", "9.0"})["compiled"], 1);
  EXPECT_THAT(kiln_.run({"doctor"}).out,
              AllOf(HasSubstr((site / "cuda_runtime/include").native()),
                    HasSubstr((site / "cuda_cccl/include").native())));
}

TEST_F(ProgramDriverTest, AnNvrtcThatTheDriverTakesIsChosenAmongThoseFound) {
  if (!fs::exists(test::paths::source(".deps/nvrtc-12/nvidia")))
    GTEST_SKIP() << "no NVRTC 12 here";
  kiln_.unset("KILN_NVRTC");
  const json older = kiln_.json_of(compile_ + Arguments{"12.4"});
  EXPECT_EQ(older["driver"], "12.4");
  EXPECT_EQ(older["min_driver"], "12.0");
  EXPECT_THAT(older["toolchains"], ElementsAre(StartsWith("nvrtc-12.")));
  const auto said = kiln_.run(compile_ + Arguments{"12.4"});
  EXPECT_THAT(said.err, HasSubstr("kiln: for a driver for CUDA 12.4: nvrtc-12."));

  const json newer = kiln_.json_of(compile_ + Arguments{"13.0"});
  EXPECT_THAT(newer["toolchains"], ElementsAre(StartsWith("nvrtc-13.")));
  EXPECT_EQ(newer["compiled"], 1);

  // The record of another does not change what such a driver takes.
  const std::string line = kiln_.write(
      "m.jsonl", json{{"source", test::kTinySource}, {"arch", "9.0"}}.dump() + "\n");
  const Arguments warm{"warm", "--manifest", line, "--driver"};
  EXPECT_EQ(kiln_.json_of(warm + Arguments{"13.0"})["min_driver"], "13.0");
  EXPECT_EQ(kiln_.json_of(warm + Arguments{"12.4"})["min_driver"], "12.0");
}

TEST_F(ProgramDriverTest, WhereNoneIsFoundTheWheelIsNamedAndNothingIsBuilt) {
  kiln_.use_fake_nvrtc();  // an NVRTC 13
  for (const Arguments& verb :
       {compile_, Arguments{"warm", "--quick", "--arch", "9.0", "--driver"}}) {
    const auto refused = kiln_.run(verb + Arguments{"12.4"});
    EXPECT_EQ(refused.status, 3) << refused.text();
    EXPECT_THAT(
        refused.err,
        HasSubstr("`pip install --no-deps --target DIR nvidia-cuda-nvrtc-cu12=="));
    EXPECT_THAT(refused.err, HasSubstr("a driver for CUDA 12.4"));
  }
  EXPECT_THAT(kiln_.object_files(), IsEmpty());
}

TEST_F(ProgramDriverTest, OnlyWithTheOptionIsADriverInTheDocument) {
  kiln_.use_fake_nvrtc();
  const auto plain = kiln_.run({"warm", "--manifest",
                                kiln_.write("m.jsonl",
                                            "{\"source\":\"__global__ void "
                                            "k() {}\",\"arch\":\"9.0\"}\n")});
  EXPECT_THAT(plain.out, HasSubstr("a driver for CUDA 13.0 or later; for an older "
                                   "driver name its version: --driver 12.4"));
  EXPECT_FALSE(kiln_.json_of({"compile", source_, "--arch", "9.0"}).contains("driver"));
  const auto asked =
      kiln_.run({"warm", "--manifest", (kiln_.folder() / "m.jsonl").native(),
                 "--driver", "13.1"});
  EXPECT_THAT(asked.out, Not(HasSubstr("for an older driver")));
}

TEST_F(ProgramDriverTest, ADriversOwnVersionIsNoVersionOfCuda) {
  for (const char* wrong : {"535", "535.104", "550.54.15", "12", "cuda-12.4", "-1.0"}) {
    const auto refused = kiln_.run(compile_ + Arguments{wrong});
    EXPECT_EQ(refused.status, 2) << wrong << refused.text();
    EXPECT_THAT(refused.err,
                HasSubstr(std::string("--driver: '") + wrong +
                          "' is no version of CUDA, such as 12.4; nvidia-smi"));
  }
}

}  // namespace
}  // namespace kiln
