// Requests as NVRTC's that a program recorded, given to `kiln warm`: each is built with
// the NVRTC that the program had, or nothing is.

#include <fstream>
#include <string>
#include <vector>

#include "tests/integration/library/library_service.h"
#include "tests/support/child_process.h"
#include "tests/support/nvrtc.h"
#include "tests/support/program.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln {
namespace {

using test::SimulatedDriver;

class NvrtcRecordTest : public test::LibraryTest {
 protected:
  NvrtcRecordTest() {
    fs::create_directories(temp_.path() / "job/inc");
    std::ofstream(temp_.path() / "job/inc/factor.h") << "#define FACTOR 5\n";
  }

  static Request request() {
    return Request::from_source(
        {.source = "#include <factor.h>\ntemplate <class T> __global__ void k(T* x) { "
                   "*x = FACTOR + MORE; }\n",
         .file_name = "src/k.cu",
         .options = {"-arch=sm_90", "-Iinc", "-DMORE=2"},
         .name_expressions = {"k<float>"},
         .as_nvrtc = true});
  }

  /// Asks for it as a program with this NVRTC does; 0: it has the kernel.
  int get(Options options, const fs::path& nvrtc) {
    options.nvrtc = nvrtc;
    return test::ChildProcess([&] {
             fs::current_path(temp_.path() / "job");
             auto service = Service::open(options);
             return service && service->get(request(), service->devices()[0]) ? 0 : 1;
           })
        .wait();
  }

  /// The lines of a record.
  static std::vector<json> lines_of(const fs::path& path) {
    std::ifstream file(path);
    std::vector<json> lines;
    for (std::string line; std::getline(file, line);)
      lines.push_back(json::parse(line));
    return lines;
  }
};

TEST_F(NvrtcRecordTest, EachLineIsBuiltWithTheNvrtcThatItWasRecordedWith) {
  const auto libraries = test::nvrtc_libraries();
  if (libraries.size() < 2)
    GTEST_SKIP() << "there is only one NVRTC";
  const SimulatedDriver driver("9.0");
  Options options = this->options(driver);
  options.record = temp_.path() / "asked.jsonl";
  for (std::size_t i = 0; i < 2; ++i)
    ASSERT_EQ(get(options, libraries[i].path), 0) << libraries[i].path;
  auto lines = lines_of(*options.record);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["program"], "program_nvrtc_record_test");
  EXPECT_EQ(lines[0]["arch"], "9.0");
  EXPECT_NE(lines[0]["toolchain"], lines[1]["toolchain"]);
  // One of the libraries has moved.
  const std::string named = lines[0]["toolchain"];
  lines[0]["toolchain"] = named.substr(0, named.rfind(' ')) + " /moved/libnvrtc.so";
  std::ofstream(*options.record) << lines[0].dump() << "\n" << lines[1].dump() << "\n";

  // Whatever this machine would choose; twice, since what is there needs no build.
  test::KilnProgram kiln;
  const std::string manifest = options.record->native();
  kiln.set("KILN_NVRTC", libraries[1].path.native());
  const json warmed = kiln.json_of({"warm", "--manifest", manifest});
  EXPECT_EQ(warmed["compiled"], 2) << warmed;
  EXPECT_FALSE(fs::exists(kiln.cache_dir() / "toolchains/recorded.json"))
      << "it says nothing of what others are built with";
  kiln.unset("KILN_NVRTC");
  kiln.set("KILN_TOOLCHAIN", "13.0");
  EXPECT_EQ(kiln.json_of({"warm", "--manifest", manifest})["hits"], 2);
  const std::string pack = kiln.folder() / "job.kpack";
  EXPECT_EQ(kiln.json_of({"pack", "-o", pack, "--manifest", manifest})["objects"], 2);

  // The programs find what they had asked for.
  options.cache_dir = kiln.cache_dir();
  options.record.reset();
  options.no_jit = true;
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(get(options, libraries[i].path), 0) << libraries[i].path;
}

TEST_F(NvrtcRecordTest, WithoutThatNvrtcNothingIsBuiltAndTheWheelIsNamed) {
  const SimulatedDriver driver("9.0");
  Options options = this->options(driver);
  options.record = temp_.path() / "asked.jsonl";
  ASSERT_EQ(get(options, test::nvrtc_libraries().front().path), 0);
  json line = lines_of(*options.record).front();
  line["toolchain"] = "12.9 0123456789abcdef+fedcba9876543210 /nowhere/libnvrtc.so.12";
  std::ofstream(*options.record, std::ios::app) << line.dump() << "\n";

  test::KilnProgram kiln;
  for (const test::KilnProgram::Arguments& more :
       {test::KilnProgram::Arguments{}, {"--arch", "9.0"}}) {
    test::KilnProgram::Arguments words{"warm", "--manifest", options.record->native()};
    words.insert(words.end(), more.begin(), more.end());
    const auto refused = kiln.run(words);
    EXPECT_EQ(refused.status, 3) << refused.text();
    EXPECT_THAT(refused.err, AllOf(HasSubstr("asked.jsonl:2: "),
                                   HasSubstr("nvidia-cuda-nvrtc-cu12==12.9.*")));
  }
  EXPECT_TRUE(kiln.object_files().empty());
  // The other line can be built.
  const json rest =
      kiln.json_of({"warm", "--skip-bad", "--manifest", options.record->native()}, 1);
  EXPECT_EQ(rest["compiled"], 1);
  EXPECT_EQ(rest["bad_lines"], 1);
  line["toolchain"] = "13.0";
  const std::string wrong = kiln.write("wrong.jsonl", line.dump());
  EXPECT_EQ(kiln.run({"warm", "--manifest", wrong}).status, 2);
}

}  // namespace
}  // namespace kiln
