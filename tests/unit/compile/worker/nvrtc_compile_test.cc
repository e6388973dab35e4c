// What NVRTC is asked and what is made of its answers; the compiler is a fake one.

#include "compile/worker/nvrtc_compile.h"

#include <algorithm>

#include "compile/worker/loaded_libraries.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"
#include "tests/unit/compile/worker/fake_nvrtc_table.h"

namespace kiln::compile {
namespace {

class NvrtcCompileTest : public testing::Test {
 protected:
  NvrtcCompileTest() {
    fake_compiler().cubin = std::string(
        "\x7F"
        "ELF\0!",
        6);
    fake_compiler().ptx = ".version 9.0\n";
  }
  ~NvrtcCompileTest() override {
    EXPECT_EQ(fake_compiler().programs, 0) << "one was not destroyed";
  }

  Result<CompileOutput> build(Clock::time_point deadline = Clock::time_point::max()) {
    return compile_here(nvrtc_, job_, deadline,
                        [&](BuildPhase phase) { phases_.push_back(phase); });
  }
  Error refusal() {
    const auto output = build();
    return output ? Error{ErrorCode::kNotFound, "it was built"} : output.error();
  }

  Nvrtc nvrtc_ = fake_nvrtc();
  CompileJob job_{.source = "source",
                  .program_name = "mine.cu",
                  .options = {"--gpu-architecture=sm_90", "-DA"},
                  .name_expressions = {"k<int>"},
                  .headers = {{"a.h", "A"}, {"b.h", ""}}};
  std::vector<BuildPhase> phases_;
};

TEST_F(NvrtcCompileTest, TheJobReachesNvrtcAsItIsAndOurOptionsBehindIt) {
  ASSERT_TRUE(build());
  const FakeCompiler& asked = fake_compiler();
  EXPECT_EQ(asked.source, "source");
  EXPECT_EQ(asked.program_name, "mine.cu");
  EXPECT_EQ(asked.headers, job_.headers);
  EXPECT_THAT(asked.options, ElementsAre("--gpu-architecture=sm_90", "-DA",
                                         "--ptxas-options=-v", "--no-cache"));
  EXPECT_THAT(asked.expressions, ElementsAre("k<int>"));
  EXPECT_THAT(phases_, ElementsAre(BuildPhase::kCompiling, BuildPhase::kReading));
}

TEST_F(NvrtcCompileTest, OnlyAnNvrtcThatHasACacheIsToldToUseNone) {
  struct Version {
    int major, minor;
    bool has_cache;
  };
  for (const auto& [major, minor, has_cache] :
       {Version{11, 8, false}, {12, 8, false}, {12, 9, true}, {13, 5, true}}) {
    fake_compiler().major = major;
    fake_compiler().minor = minor;
    ASSERT_TRUE(build());
    EXPECT_EQ(std::ranges::count(fake_compiler().options, "--no-cache"), has_cache)
        << major << '.' << minor;
  }
}

TEST_F(NvrtcCompileTest, ACubinKeepsItsNulsAndTextsLoseTheirs) {
  fake_compiler().log = "a warning\n";
  const auto output = test::value_of(build());
  EXPECT_EQ(as_text(output.image), fake_compiler().cubin);
  EXPECT_EQ(output.ptx, ".version 9.0\n");
  EXPECT_EQ(output.log, "a warning\n");
  EXPECT_THAT(output.lowered_names, ElementsAre(LoweredName{"k<int>", "_Z1kv"}));
}

TEST_F(NvrtcCompileTest, ALongLogIsShortenedAndItsResourcesAreStillRead) {
  const std::string much(3U << 20U, 'x');
  fake_compiler().log = "first\n" + much +
                        "\nptxas info    : Compiling entry function 'k' for 'sm_90'\n"
                        "ptxas info    : Function properties for k\n"
                        "ptxas info    : Used 7 registers\n" +
                        much + "\nlast\n";
  const auto output = test::value_of(build());
  EXPECT_LT(output.log.size(), 600U << 10U);
  EXPECT_THAT(output.log, testing::StartsWith("first\n"));
  EXPECT_THAT(output.log, HasSubstr(" bytes are left out here"));
  EXPECT_THAT(output.log, testing::EndsWith("last\n"));
  ASSERT_EQ(output.resources.size(), 1U);
  EXPECT_EQ(output.resources[0].registers, 7U);

  fake_compiler().failing["nvrtcCompileProgram"] = NVRTC_ERROR_COMPILATION;
  const auto message = refusal().message;
  EXPECT_LT(message.size(), 600U << 10U);
  EXPECT_THAT(message, HasSubstr(" bytes are left out here"));
}

TEST_F(NvrtcCompileTest, NamesOfEntryPointsAreLimitedInSum) {
  for (const char c : {'a', 'b', 'c'})
    fake_compiler().log += "ptxas info    : Compiling entry function '" +
                           std::string(100'000, c) + "' for 'sm_90'\n";
  const auto output = test::value_of(build());
  EXPECT_EQ(output.resources.size(), 2U);
}

TEST_F(NvrtcCompileTest, PtxIsTheImageOfATargetOfPtxAndBesideACubin) {
  EXPECT_EQ(build().value().ptx, ".version 9.0\n");
  job_.target.kind = device::ImageKind::kPtx;
  const auto output = test::value_of(build());
  EXPECT_EQ(as_text(output.image), ".version 9.0\n");
  EXPECT_EQ(output.ptx, "");
}

TEST_F(NvrtcCompileTest, ANulIsRefusedWhereverItIs) {
  const CompileJob sound = job_;
  const std::string nul("a\0b", 3);
  const auto message = [&](const auto& change) {
    job_ = sound;
    change(job_);
    const Error error = refusal();
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    return error.message;
  };
  EXPECT_EQ(message([&](CompileJob& job) { job.source = nul; }),
            "the source holds a NUL byte");
  EXPECT_EQ(message([&](CompileJob& job) { job.program_name = nul; }),
            "the source's name holds a NUL byte");
  EXPECT_EQ(message([&](CompileJob& job) { job.headers[1].name = nul; }),
            "a header's name holds a NUL byte");
  EXPECT_EQ(message([&](CompileJob& job) { job.headers[1].text = nul; }),
            "header b.h holds a NUL byte");
  EXPECT_EQ(message([&](CompileJob& job) { job.options[1] = nul; }),
            "an option holds a NUL byte");
  EXPECT_EQ(message([&](CompileJob& job) { job.name_expressions[0] = nul; }),
            "a name expression holds a NUL byte");
  EXPECT_EQ(fake_compiler().source, "") << "NVRTC saw one";
}

TEST_F(NvrtcCompileTest, AFailureNamesItsCallAndHasTheWholeLog) {
  fake_compiler().log = "kernel.cu(1): error\nptxas info    : 0 bytes gmem\nmore\n";
  fake_compiler().failing = {{"nvrtcCompileProgram", NVRTC_ERROR_COMPILATION}};
  const Error error = refusal();
  EXPECT_EQ(error.code, ErrorCode::kCompileFailed);
  EXPECT_EQ(error.message,
            "nvrtcCompileProgram: NVRTC_ERROR_COMPILATION\nkernel.cu(1): error\nmore");
}

TEST_F(NvrtcCompileTest, ALogThatCannotBeReadHidesNoFailure) {
  fake_compiler().log = "never read";
  fake_compiler().failing = {{"nvrtcCompileProgram", NVRTC_ERROR_COMPILATION},
                             {"nvrtcGetProgramLogSize", NVRTC_ERROR_INTERNAL_ERROR}};
  EXPECT_EQ(refusal().message, "nvrtcCompileProgram: NVRTC_ERROR_COMPILATION");
}

TEST_F(NvrtcCompileTest, EachCallThatFailsIsNamed) {
  for (const char* const call :
       {"nvrtcCreateProgram", "nvrtcAddNameExpression", "nvrtcGetPTXSize"}) {
    fake_compiler().failing = {{call, NVRTC_ERROR_INTERNAL_ERROR}};
    EXPECT_THAT(refusal().message, testing::StartsWith(call));
  }
}

TEST_F(NvrtcCompileTest, SuccessWithoutAnImageOrANameIsAFailure) {
  fake_compiler().has_lowered_names = false;
  EXPECT_EQ(refusal().message, "nvrtcGetLoweredName(k<int>) gave no name");
  fake_compiler().has_lowered_names = true;
  fake_compiler().lowered = "";
  EXPECT_EQ(refusal().code, ErrorCode::kCompileFailed);
  fake_compiler().cubin = "";
  fake_compiler().log = "a hint";
  const Error error = refusal();
  EXPECT_EQ(error.code, ErrorCode::kCompileFailed);
  EXPECT_THAT(error.message,
              testing::AllOf(HasSubstr("/x/libnvrtc.so reported success and gave no "
                                       "image"),
                             testing::EndsWith("\na hint")));
}

TEST_F(NvrtcCompileTest, TheDeadlineIsNvrtcsToHeed) {
  ASSERT_TRUE(build());
  EXPECT_FALSE(fake_compiler().was_stopped);
  fake_compiler().failing = {{"nvrtcCompileProgram", NVRTC_ERROR_CANCELLED}};
  const auto late = build(Clock::now());
  EXPECT_TRUE(fake_compiler().was_stopped);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kTimeout);
}

TEST_F(NvrtcCompileTest, AnNvrtcWithoutAFlowCallbackBuildsToo) {
  nvrtc_.set_flow_callback = nullptr;
  EXPECT_TRUE(build());
  EXPECT_EQ(fake_compiler().flow, nullptr);
}

TEST(NvrtcError, SaysWhatTheCallerCanDo) {
  const Nvrtc nvrtc = fake_nvrtc();
  const auto code = [&](nvrtcResult result, std::string_view log = "") {
    return nvrtc_error(nvrtc, result, "call", log).code;
  };
  EXPECT_EQ(code(NVRTC_ERROR_COMPILATION), ErrorCode::kCompileFailed);
  EXPECT_EQ(code(NVRTC_ERROR_INTERNAL_ERROR), ErrorCode::kCompileFailed);
  EXPECT_EQ(code(NVRTC_ERROR_OUT_OF_MEMORY), ErrorCode::kResourceLimit);
  EXPECT_EQ(code(NVRTC_ERROR_BUILTIN_OPERATION_FAILURE), ErrorCode::kUnavailable);
  EXPECT_EQ(code(NVRTC_ERROR_INVALID_INPUT), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(NVRTC_ERROR_INVALID_OPTION), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(NVRTC_ERROR_COMPILATION, "catastrophic error: out of memory\n"),
            ErrorCode::kResourceLimit);
  EXPECT_THAT(nvrtc_error(nvrtc, NVRTC_ERROR_OUT_OF_MEMORY, "call", "").message,
              HasSubstr("raise the memory limit or simplify the source"));
}

TEST(NvrtcDescription, HasItsArchitecturesInOrder) {
  const Nvrtc nvrtc = fake_nvrtc();
  const auto description = test::value_of(describe(nvrtc));
  EXPECT_EQ(description.major, 13);
  EXPECT_THAT(description.architectures, ElementsAre(device::ComputeCapability{7, 5},
                                                     device::ComputeCapability{10, 0},
                                                     device::ComputeCapability{12, 1}));
  EXPECT_THAT(description.nvrtc.path.native(), IsEmpty()) << "the loader has none";
  fake_compiler().failing = {{"nvrtcVersion", NVRTC_ERROR_INVALID_INPUT}};
  EXPECT_FALSE(describe(nvrtc));
}

TEST(OpenNvrtc, TakesAnAbsolutePathOfAnNvrtc) {
  const auto error = [](const std::filesystem::path& path) {
    const auto opened = open_nvrtc({path, ""});
    return opened ? Error{ErrorCode::kNotFound, "it was opened"} : opened.error();
  };
  EXPECT_EQ(error("libnvrtc.so").code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error("libnvrtc.so").message,
            "the path of NVRTC must be absolute, not 'libnvrtc.so'");
  const test::TempDir folder;
  const Error missing = error(folder.path() / "libnvrtc.so");
  EXPECT_EQ(missing.code, ErrorCode::kUnavailable);
  EXPECT_THAT(missing.message,
              HasSubstr("cannot open NVRTC " + folder.path().native()));
  std::filesystem::path other;
  for (const auto& library : loaded_libraries()) {
    if (library.path.filename().native().starts_with("libstdc++"))
      other = library.path;
  }
  const Error foreign = error(other);
  EXPECT_EQ(foreign.code, ErrorCode::kUnavailable);
  EXPECT_EQ(foreign.message,
            other.native() +
                " has no nvrtcVersion: it is not an NVRTC, or is older than 11.2");
}

}  // namespace
}  // namespace kiln::compile
