// What a run of the library recorded, given to `kiln warm`.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/integration/library/library_service.h"
#include "tests/support/kernel_sources.h"
#include "tests/support/program.h"

namespace kiln {
namespace {

using test::SimulatedDriver;

class KilnRecordTest : public test::LibraryTest {};

TEST_F(KilnRecordTest, WhatWasAskedOfTheLibraryWarmsACacheInWhichAllAreHits) {
  const SimulatedDriver driver("8.6,9.0");
  std::vector<Request> requests{
      test::kSoftmax, small_source(),
      Request::from_source({.source = "#include \"value.h\"\n"
                                      "template <class T> __global__ void set(T* x) {\n"
                                      "  *x = VALUE * BY;\n}\n",
                            .file_name = "kernels/set.cu",
                            .headers = {{"value.h", "#define VALUE 3\n"}},
                            .defines = {"BY=2"},
                            .options = {"-use_fast_math"},
                            .name_expressions = {"set<float>", "set<int>"}})};
  Options options = this->options(driver);
  options.record = temp_.path() / "asked.jsonl";
  const auto get_all = [&](const Options& with) {
    auto service = open(with);
    std::vector<std::string> keys;
    for (const Device& device : service->devices()) {
      for (const Request& request : requests) {
        const auto kernel = service->get(request, device);
        EXPECT_TRUE(kernel) << kernel.error().message;
        keys.push_back(kernel ? kernel->key() : "");
      }
    }
    return keys;
  };
  const auto built = get_all(options);

  test::KilnProgram kiln;
  const auto report = kiln.json_of({"warm", "--manifest", options.record->native()});
  EXPECT_EQ(report["compiled"], 6) << report;
  options.cache_dir = kiln.cache_dir();
  options.record.reset();
  options.no_jit = true;
  EXPECT_EQ(get_all(options), built);
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
