// Kiln's messages and the host's own logging, which both use the same spdlog.

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>

#include "library_service.h"

namespace kiln {
namespace {

using test::LibraryTest;
using test::SimulatedDriver;

class LibraryLogTest : public LibraryTest {};

TEST_F(LibraryLogTest, TheHostsDefaultLoggerIsLeftAlone) {
  std::ostringstream hosts;
  const auto logger = std::make_shared<spdlog::logger>(
      "host", std::make_shared<spdlog::sinks::ostream_sink_st>(hosts));
  logger->set_level(spdlog::level::trace);
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(logger);

  const SimulatedDriver driver;
  Options options = this->options(driver);
  options.cache_dir = "/proc/kiln";  // nobody can make that: a warning
  testing::internal::CaptureStderr();
  {
    auto service = open(options);
    EXPECT_TRUE(service->get(small_source(), service->devices().at(0)));
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("/proc/kiln"));
  EXPECT_EQ(hosts.str(), "");
  EXPECT_EQ(spdlog::default_logger(), logger);
  EXPECT_EQ(logger->level(), spdlog::level::trace);
  spdlog::set_default_logger(before);
}

}  // namespace
}  // namespace kiln
