// Row 47: a host program that closes every descriptor that it does not know, as daemons
// and launchers do, and then opens files of its own.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/integration/library/library_service.h"
#include "tests/support/child_process.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using test::Campaign;
using test::SimulatedDriver;

class ClosingHostTest : public test::LibraryTest {
 protected:
  static constexpr int kFirst = 3;
  static constexpr std::size_t kHostBytes = 200'000;

  struct HostFile {
    int fd;
    struct stat info;
  };

  /// Opens files until each number up to the last one that was open is the host's.
  std::vector<HostFile> take_descriptors() {
    int last = kFirst;
    for (const auto& each : fs::directory_iterator("/proc/self/fd"))
      last = std::max(last, std::stoi(each.path().filename()));
    for (int fd = kFirst; fd <= last; ++fd) ::close(fd);
    std::vector<HostFile> mine;
    const std::string text(kHostBytes, 'h');
    for (int i = 0; mine.empty() || mine.back().fd < last; ++i) {
      const fs::path path = temp_.path() / ("host" + std::to_string(i));
      HostFile file{::open(path.c_str(), O_RDWR | O_CREAT, 0600), {}};
      if (::write(file.fd, text.data(), text.size()) !=
              static_cast<ssize_t>(text.size()) ||
          ::fstat(file.fd, &file.info) != 0)
        return {};
      mine.push_back(file);
    }
    return mine;
  }

  /// Empty, or what has become of one of them.
  static std::string changed(const std::vector<HostFile>& files) {
    std::string text(2 * kHostBytes, '\0');
    for (const HostFile& file : files) {
      struct stat info {};
      if (::fstat(file.fd, &info) != 0 || info.st_ino != file.info.st_ino)
        return "descriptor " + std::to_string(file.fd) + " was closed";
      const ssize_t n = ::pread(file.fd, text.data(), text.size(), 0);
      if (n != static_cast<ssize_t>(kHostBytes) ||
          text.find_first_not_of('h') != kHostBytes)
        return "descriptor " + std::to_string(file.fd) + " was written to";
      if (::lseek(file.fd, 0, SEEK_CUR) != static_cast<off_t>(kHostBytes))
        return "descriptor " + std::to_string(file.fd) + " was read";
    }
    return "";
  }
};

TEST_F(ClosingHostTest, fault_47_AHostThatClosesAllDuringABuildKeepsItsFiles) {
  Campaign campaign;
  const SimulatedDriver driver;
  for (const char* const mode : {"hang", ""}) {
    Options fake = options(driver);
    fake.nvrtc = test::paths::kFakeNvrtc;
    fake.compile_timeout = 3s;  // some heartbeats
    fake.record = temp_.path() / "record";
    fake.on_event = {};
    const auto host = [&]() -> std::string {
      ::setenv("KILN_FAKE_NVRTC", mode, 1);
      auto service = Service::open(fake);
      if (!service)
        return service.error().message;
      const Device device = service->devices().at(0);
      std::thread building([&] {
        for (int i = 0; i < 3; ++i) std::ignore = service->get(small_source(i), device);
      });
      test::eventually(5s, [] { return !test::children_of(::getpid()).empty(); });
      std::this_thread::sleep_for(500ms);
      const std::vector<HostFile> files = take_descriptors();
      if (files.empty())
        return "no file can be opened";
      building.join();
      if (auto what = changed(files); !what.empty())
        return "in the build, " + what;
      std::ignore = service->get(small_source(7), device);
      { const Service ended = *std::move(service); }
      if (auto what = changed(files); !what.empty())
        return "at its end, " + what;
      return "";
    };
    const test::SharedWithChildren<std::array<char, 256>> said;
    test::ChildProcess child([&] {
      host().copy(said->data(), said->size() - 1);
      return 0;
    });
    const int code = child.wait();
    campaign.injected();
    if (code != 0 || (*said)[0] != '\0')
      campaign.wrong(std::string(mode) + ": ended with " + std::to_string(code) + ": " +
                     said->data());
  }
}

}  // namespace
}  // namespace kiln
