// Row 48: builds in a cgroup that has memory for fewer of them than there are cores.

#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/support/fault/campaign.h"
#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

/// A cgroup with a limit of memory, of either version, below that of this process.
class MemoryGroup {
 public:
  explicit MemoryGroup(const std::string& bytes) {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      const std::string path = line.substr(line.find(':', line.find(':') + 1) + 1);
      if (line.starts_with("0::"))
        make("/sys/fs/cgroup" + path, "memory.max", bytes);
      else if (line.find(":memory:") != line.npos)
        make("/sys/fs/cgroup/memory" + path, "memory.limit_in_bytes", bytes);
    }
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  ~MemoryGroup() {
    if (!folder_.empty())
      ::rmdir(folder_.c_str());
  }

  /// Empty: this machine lets us make none.
  [[nodiscard]] const fs::path& folder() const { return folder_; }

 private:
  void make(const fs::path& parent, const char* limit, const std::string& bytes) {
    const fs::path folder = parent / ("kiln-test-" + std::to_string(::getpid()));
    std::error_code error;
    if (!folder_.empty() || !fs::create_directory(folder, error))
      return;
    std::ofstream(folder / limit) << bytes;
    std::string now;
    std::getline(std::ifstream(folder / limit), now);
    if (now == bytes)
      folder_ = folder;
    else
      ::rmdir(folder.c_str());
  }

  fs::path folder_;
};

TEST(MemoryLimit, fault_49_EightBuildsInTheMemoryOfTwoAreStored) {
  const MemoryGroup group("629145600");  // 600 MiB
  if (group.folder().empty())
    GTEST_SKIP() << "this machine lets us make no cgroup with a limit of memory";
  test::Campaign campaign;
  test::KilnProgram kiln;
  kiln.use_fake_nvrtc("large");  // 200 MiB each
  std::string lines;
  for (int i = 0; i < 8; ++i) {
    const std::string n = std::to_string(i);
    lines +=
        json{{"source", "__global__ void k" + n + "() {}"}, {"arch", "9.0"}}.dump() +
        "\n";
  }
  const auto manifest = kiln.write("kernels.jsonl", lines);
  campaign.injected();
  const auto done =
      kiln.run_in_shell("echo $$ > " + (group.folder() / "cgroup.procs").native() +
                        "; kiln warm --manifest " + manifest + " --jobs 8 --json");
  EXPECT_EQ(done.status, 0) << done.text();
  EXPECT_EQ(kiln.object_files().size(), 8U);
}

}  // namespace
}  // namespace kiln
