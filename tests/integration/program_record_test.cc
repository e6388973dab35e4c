// What a run of the library recorded, given to `kiln warm`.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "kiln/c.h"
#include "tests/integration/library/library_service.h"
#include "tests/support/child_process.h"
#include "tests/support/kernel_sources.h"
#include "tests/support/program.h"

// C++ warns of what a designated initializer leaves at zero, C does not.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace kiln {
namespace {

using test::SimulatedDriver;

class KilnRecordTest : public test::LibraryTest {
 protected:
  /// Runs `work` in a process of its own, whose folder is `folder`.
  static int in_process_at(const std::filesystem::path& folder,
                           const std::function<int()>& work) {
    return test::ChildProcess(
               [&] { return ::chdir(folder.c_str()) == 0 ? work() : 125; })
        .wait();
  }

  /// Headers in memory and in two folders, one of them named by an option; defines, a
  /// language, a file name, name expressions.
  static std::vector<Request> requests() {
    return {test::kSoftmax, small_source(),
            Request::from_source(
                {.source = "#include \"value.h\"\n#include <factor.h>\n"
                           "#include <more.h>\n"
                           "template <class T> requires(sizeof(T) > 1) __global__\n"
                           "void set(T* x) { *x = VALUE * FACTOR * BY + MORE; }\n",
                 .file_name = "kernels/set.cu",
                 .headers = {{"value.h", "#define VALUE 3\n"}},
                 .include_dirs = {"inc"},
                 .defines = {"BY=2"},
                 .options = {"-use_fast_math", "-I", "more", "--std=c++20"},
                 .name_expressions = {"set<float>", "set<int>"}})};
  }

  /// A folder with the headers that requests() need.
  std::filesystem::path folder_with_headers(const std::string& name) {
    const auto folder = temp_.path() / name;
    std::filesystem::create_directories(folder / "inc");
    std::filesystem::create_directories(folder / "more");
    std::ofstream(folder / "inc/factor.h") << "#define FACTOR 5\n";
    std::ofstream(folder / "more/more.h") << "#define MORE 7\n";
    return folder;
  }

  /// How many of the requests did not get a kernel on each device.
  static int get_all(const Options& options) {
    auto service = Service::open(options);
    if (!service)
      return 100;
    int missing = 0;
    for (const Device& device : service->devices()) {
      for (const Request& request : requests())
        missing += service->get(request, device) ? 0 : 1;
    }
    return missing;
  }
};

TEST_F(KilnRecordTest, WhatWasAskedOfTheLibraryWarmsACacheInWhichAllAreHits) {
  const SimulatedDriver driver("8.6,9.0");
  Options options = this->options(driver);
  options.record = temp_.path() / "asked.jsonl";
  EXPECT_EQ(in_process_at(folder_with_headers("job"), [&] { return get_all(options); }),
            0);

  // The program runs in a folder of its own.
  test::KilnProgram kiln;
  const auto report = kiln.json_of({"warm", "--manifest", options.record->native()});
  EXPECT_EQ(report["compiled"], 6) << report;
  options.cache_dir = kiln.cache_dir();
  options.record.reset();
  options.no_jit = true;
  EXPECT_EQ(
      in_process_at(folder_with_headers("other"), [&] { return get_all(options); }), 0);
  // What is not equal is not in the cache.
  const auto changed = folder_with_headers("changed");
  std::ofstream(changed / "more/more.h") << "#define MORE 8\n";
  EXPECT_EQ(in_process_at(changed, [&] { return get_all(options); }), 2);
}

TEST_F(KilnRecordTest, ALinkOfSourcesAndFilesIsRecordedAndWarmsACacheInWhichItIsAHit) {
  const SimulatedDriver driver("9.0");
  Options options = this->options(driver);
  options.record = temp_.path() / "asked.jsonl";
  const auto folder = [this](const char* name, const char* factor) {
    const auto made = folder_with_headers(name);
    std::ofstream(made / "twice.ptx")
        << ".version 7.0\n.target sm_80\n.address_size 64\n.visible .func (.param .b32 "
           "r) twice(.param .b32 x) {\n.reg .b32 %r<3>;\nld.param.u32 %r1, "
           "[x];\nmul.lo.s32 %r2, %r1, "
        << factor << ";\nst.param.b32 [r], %r2;\nret;\n}\n";
    return made;
  };
  // 77: there is no linker; else how many of two links did not get a kernel.
  const auto get = [&options] {
    auto service = Service::open(options);
    if (!service)
      return 100;
    const std::string twice = "extern \"C\" __device__ int twice(int);\n";
    const SourceOptions kernel{
        .source = twice +
                  "extern __device__ int more(int);\nextern \"C\" __global__ "
                  "void k(int* x) { *x = twice(more(*x)); }\n"};
    const SourceOptions more{
        .source =
            "#include <factor.h>\n__device__ int more(int x) { return x + FACTOR "
            "+ BY; }\n",
        .file_name = "more.cu",
        .include_dirs = {"inc"},
        .defines = {"BY=2"}};
    const SourceOptions alone{.source = twice +
                                        "extern \"C\" __global__ void k(int* x) { *x = "
                                        "twice(*x); }\n"};
    int missing = 0;
    for (const Request& request :
         {Request::from_sources({kernel, more},
                                {.files = {"twice.ptx"}, .options = {"-Xptxas=-O1"}}),
          Request::from_sources({alone}, {.files = {"twice.ptx"}})}) {
      const auto got = service->get(request, service->devices()[0]);
      if (!got && got.error().message.find("no libnvJitLink") != std::string::npos)
        return 77;
      missing += got ? 0 : 1;
    }
    return missing;
  };
  const int status = in_process_at(folder("job", "2"), get);
  if (status == 77)
    GTEST_SKIP() << "there is no nvJitLink beside this NVRTC";
  ASSERT_EQ(status, 0);

  test::KilnProgram kiln;
  const auto report = kiln.json_of({"warm", "--manifest", options.record->native()});
  EXPECT_EQ(report["compiled"], 2) << report;
  options.cache_dir = kiln.cache_dir();
  options.record.reset();
  options.no_jit = true;
  EXPECT_EQ(in_process_at(folder("other", "2"), get), 0);
  EXPECT_EQ(in_process_at(folder("changed", "3"), get), 2);
}

TEST_F(KilnRecordTest, ARequestOfCIsRecordedAsThatOfCxx) {
  const SimulatedDriver driver("9.0");
  const auto here = folder_with_headers("job");
  Options options = this->options(driver);
  options.record = temp_.path() / "cxx.jsonl";
  const Request request = requests().back();
  EXPECT_EQ(in_process_at(here,
                          [&] {
                            auto service = Service::open(options);
                            const bool got =
                                service && service->get(request, service->devices()[0]);
                            return got ? 0 : 1;
                          }),
            0);

  const std::string record = temp_.path() / "c.jsonl";
  const std::string in_record = "record=" + record;
  const std::string cache = "cache_dir=" + options.cache_dir->native();
  const std::string path = "driver=" + driver.path().native();
  const std::array c_settings{cache.c_str(), path.c_str(), in_record.c_str()};
  kiln_options c_options = KILN_OPTIONS_INIT;
  c_options.settings = c_settings.data();
  c_options.setting_count = c_settings.size();
  const SourceOptions& of = request.source();
  const auto pointers = [](const std::vector<std::string>& texts) {
    std::vector<const char*> list;
    for (const std::string& text : texts) list.push_back(text.c_str());
    return list;
  };
  const auto options_c = pointers(of.options);
  const auto defines = pointers(of.defines);
  const auto names = pointers(of.name_expressions);
  const char* const folder = of.include_dirs[0].c_str();
  const char* const header = of.headers.begin()->first.c_str();
  const char* const text = of.headers.begin()->second.c_str();
  kiln_source source = KILN_SOURCE_INIT;
  source.source = of.source.c_str();
  source.file_name = of.file_name.c_str();
  source.header_names = &header;
  source.header_texts = &text;
  source.header_count = 1;
  source.include_dirs = &folder;
  source.include_dir_count = 1;
  source.defines = defines.data();
  source.define_count = defines.size();
  source.options = options_c.data();
  source.option_count = options_c.size();
  source.name_expressions = names.data();
  source.name_expression_count = names.size();
  EXPECT_EQ(in_process_at(here,
                          [&] {
                            kiln_service* service = nullptr;
                            kiln_kernel* kernel = nullptr;
                            if (kiln_service_open(&c_options, &service) != nullptr)
                              return 1;
                            return kiln_get_source(service, 0, &source, nullptr,
                                                   &kernel) == nullptr
                                       ? 0
                                       : 2;
                          }),
            0);
  const auto text_of = [](const std::filesystem::path& file) {
    std::ifstream stream(file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  EXPECT_EQ(text_of(record), text_of(*options.record));
  EXPECT_NE(text_of(record), "");
}

// Writing to a pipe whose reader has ended would end the host.
TEST_F(KilnRecordTest, APipeIsRefused) {
  const SimulatedDriver driver("9.0");
  Options options = this->options(driver);
  options.record = temp_.path() / "pipe";
  ASSERT_EQ(::mkfifo(options.record->c_str(), 0600), 0);
  const int reader = ::open(options.record->c_str(), O_RDONLY | O_NONBLOCK);
  const auto service = Service::open(options);
  ::close(reader);
  ASSERT_FALSE(service);
  EXPECT_EQ(service.error().code, ErrorCode::kIo);
  EXPECT_NE(service.error().message.find("is no regular file"), std::string::npos)
      << service.error().message;
}

}  // namespace
}  // namespace kiln
