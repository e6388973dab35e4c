#include "toolchain/linker.h"

#include <string>

#include "codec/digest.h"
#include "tests/support/elf_builder.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"

namespace kiln::device {
namespace {

class FindLinker : public testing::Test {
 protected:
  /// A library with that build id below the test's folder.
  fs::path add(const std::string& place, std::string_view build_id) const {
    const fs::path path = dir_.path() / place;
    fs::create_directories(path.parent_path());
    test::write_library(path, build_id);
    return fs::canonical(path);
  }
  void add_text(const std::string& place, std::string_view text) const {
    fs::create_directories((dir_.path() / place).parent_path());
    test::write_file(dir_.path() / place, as_bytes(text));
  }
  [[nodiscard]] Toolchain toolchain(const std::string& place, int major) const {
    Toolchain found;
    found.id = {"65be", "08d1"};
    found.facts = {{major, 0}, {{9, 0}}};
    found.nvrtc = add(place, "65be");
    return found;
  }

  const test::TempDir dir_;
};

TEST_F(FindLinker, InTheFolderOfNvrtcWithTheDeviceRuntime) {
  const Toolchain nvrtc = toolchain("cuda/lib64/libnvrtc.so.13", 13);
  add("cuda/lib64/libnvJitLink.so.12", "12");
  const fs::path path = add("cuda/lib64/libnvJitLink.so.13", "13");
  const auto without = test::value_of(find_linker(nvrtc, {}));
  EXPECT_EQ(without.path, path);
  EXPECT_EQ(without.id, (LinkerId{"13", ""}));
  add_text("cuda/lib64/libcudadevrt.a", "archive");
  const auto with = find_linker(nvrtc, {});
  EXPECT_EQ(with->id.device_runtime, Digest::of(as_bytes("archive")).hex());
  EXPECT_EQ(as_text(with->device_runtime), "archive");
}

TEST_F(FindLinker, InWheelsSideBySide) {
  const Toolchain nvrtc = toolchain("nvidia/cuda_nvrtc/lib/libnvrtc.so.12", 12);
  const fs::path path = add("nvidia/nvjitlink/lib/libnvJitLink.so.12", "12");
  add_text("nvidia/cuda_runtime/lib/libcudadevrt.a", "archive");
  const auto found = test::value_of(find_linker(nvrtc, {}));
  EXPECT_EQ(found.path, path);
  EXPECT_NE(found.id.device_runtime, "");
}

TEST_F(FindLinker, ElseWhereNvrtcIsLookedForOfTheSameMajorVersion) {
  const Toolchain nvrtc = toolchain("own/libnvrtc.so.13", 13);
  add("other/libnvJitLink.so.12", "12");
  LibraryPlaces places;
  places.loader_path = {dir_.path() / "other"};
  EXPECT_THAT(
      find_linker(nvrtc, places),
      test::IsError(ErrorCode::kUnavailable, AllOf(HasSubstr("libnvJitLink.so.13"),
                                                   HasSubstr("nvidia-nvjitlink"))));
  const fs::path path = add("other/libnvJitLink.so.13", "13");
  EXPECT_EQ(find_linker(nvrtc, places)->path, path);
}

TEST_F(FindLinker, TheRecordedOneWhereNoNvrtcIsInstalled) {
  Toolchain recorded;
  recorded.id = {"65be", "08d1"};
  recorded.facts = {{13, 0}, {{9, 0}}};
  EXPECT_FALSE(find_linker(recorded, {}));
  recorded.linker = LinkerId{"13", "ab"};
  const auto found = test::value_of(find_linker(recorded, {}));
  EXPECT_EQ(found.id, *recorded.linker);
  EXPECT_TRUE(found.path.empty()) << "a miss cannot be linked";
}

}  // namespace
}  // namespace kiln::device
