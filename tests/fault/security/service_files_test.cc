// Row 33: what another user left in place of the files that a service keeps beside the
// objects: what it knows of toolchains, memos of headers, reproductions.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "build/build_options.h"
#include "tests/fault/security/plants.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/paths.h"
#include "tests/support/service_requests.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using test::kPlants;
using test::kVictim;
using test::Outside;
using test::Plant;

class ServiceFilesTest : public test::CampaignTest {
 protected:
  void SetUp() override {
    if (!test::User::can_become_another())
      GTEST_SKIP()
          << "ONLY ROOT CAN BECOME A SECOND USER: planted files were not tried";
    const bool reachable =
        kVictim
            .run([] {
              return ::access(test::paths::kFakeNvrtc, R_OK) == 0 ? "" : "no access";
            })
            .empty();
    if (!reachable)
      GTEST_SKIP() << "ANOTHER USER CANNOT READ THE BUILD HERE: planted files were not "
                      "tried";
    ::chmod(dir_.path().c_str(), 0755);
    ASSERT_EQ(::chown(dir_.path().c_str(), kVictim.uid(), kVictim.uid()), 0);
    ASSERT_EQ(
        kVictim.run([this] { return fetch(payload_file_, dir_.path() / "reference"); }),
        "");
  }

  /// With a header, whose digest is remembered: it is as old as the checkout.
  [[nodiscard]] Request kernel() const {
    return Request::from_source(
        {.source = "#include \"number.h\"\n"
                   "extern \"C\" __global__ void k(int* x) { *x = NUMBER; }\n",
         .include_dirs = {headers_}});
  }

  /// Builds or finds the kernel; its bytes must be those in `payload`, which the first
  /// call writes. "" if they are.
  [[nodiscard]] std::string fetch(const fs::path& payload, const fs::path& root) const {
    ::setenv("KILN_FAKE_NVRTC", "", 1);
    const auto service = BuildService::open(config(root));
    if (!service)
      return service.error().message;
    const auto fetched = test::fetch(**service, kernel());
    if (!fetched)
      return fetched.error().message;
    const std::string bytes(as_text(fetched->object->payload()));
    if (!fs::exists(payload))
      std::ofstream(payload, std::ios::binary) << bytes;
    std::ifstream file(payload, std::ios::binary);
    const std::string right{std::istreambuf_iterator<char>(file), {}};
    return bytes == right ? "" : "other bytes";
  }

  /// One that crashes the compiler, so that a reproduction is kept.
  [[nodiscard]] std::string crash() const {
    ::setenv("KILN_FAKE_NVRTC", "crash", 1);
    const auto service = BuildService::open(config(root_));
    const auto failed = test::fetch(**service, test::small_kernel(1));
    return failed ? "it was built" : "";
  }

  [[nodiscard]] static Config config(const fs::path& root) {
    Config config = test::service_config(root);
    config.nvrtc = test::paths::kFakeNvrtc;
    config.precompiled_limit_bytes = 1U << 30U;
    return config;
  }

  /// A file of the folder, or the folder itself where it is empty.
  static fs::path first_of(const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder)) return entry.path();
    return folder;
  }

  /// "" if the `stats` of a new process say that something was refused, or do not.
  [[nodiscard]] std::string check_counted(bool is_expected) const {
    return kVictim.run([&]() -> std::string {
      const auto stats = cache::Cache::open(cache_options(config(root_)))->stats();
      if (!stats)
        return stats.error().message;
      const bool is_counted = stats->counters.contains("untrusted");
      return is_counted == is_expected ? "" : is_counted ? "counted" : "not counted";
    });
  }

  void attack(const std::function<fs::path()>& place) {
    for (const Plant plant : kPlants) {
      SCOPED_TRACE(test::to_string(plant));
      fs::remove_all(root_);
      fs::remove_all(dir_.path() / "outside");
      const Outside outside(dir_.path() / "outside");
      ASSERT_EQ(kVictim.run([&] { return fetch(payload_file_, root_) + crash(); }), "");
      ASSERT_EQ(check_counted(false), "");
      const fs::path path = place();
      if (!put(plant, path, outside)) {
        std::printf("not tried here: %s\n", test::to_string(plant));
        continue;
      }
      // So that all of it is asked again.
      fs::remove_all(root_ / "objects");
      campaign_.injected();
      if (const auto wrong =
              kVictim.run([&] { return fetch(payload_file_, root_) + crash(); });
          !wrong.empty())
        campaign_.wrong(path.native() + ": " + wrong);
      // A file of the victim's own is not refused, but holds nothing of use.
      if (const auto wrong = check_counted(plant != Plant::kHardLink); !wrong.empty())
        campaign_.wrong(path.native() + ": " + wrong);
      if (const auto change = outside.change(); !change.empty())
        campaign_.wrong(path.native() + ": " + change);
    }
  }

  const test::TempDir dir_;
  const fs::path root_ = dir_.path() / "root";
  const fs::path headers_ = test::paths::source("tests/fault/security/headers");
  const fs::path payload_file_ = dir_.path() / "payload";
};

TEST_F(ServiceFilesTest,
       fault_33_InPlaceOfWhatIsKnownOfToolchainsItIsNotBelievedButCounted) {
  attack([&] { return root_ / "toolchains"; });
  attack([&] { return first_of(root_ / "toolchains"); });
  attack([&] { return root_ / "toolchains" / "recorded.json"; });
}

TEST_F(ServiceFilesTest, fault_33_InPlaceOfAMemoItIsNotBelievedButCounted) {
  if (!fs::exists(dir_.path() / "reference" / "memo"))
    GTEST_SKIP() << "what headers hold is not remembered on this file system";
  attack([&] { return root_ / "memo"; });
  attack([&] { return first_of(root_ / "memo"); });
}

TEST_F(ServiceFilesTest,
       fault_33_InPlaceOfPrecompiledHeadersItIsNotWrittenToButCounted) {
  attack([&] { return root_ / "pch"; });
  attack([&] { return root_ / "pch" / "new"; });
}

TEST_F(ServiceFilesTest, fault_33_InPlaceOfTheReproductionsItIsNotWrittenToButCounted) {
  attack([&] { return root_ / "repro"; });
}

}  // namespace
}  // namespace kiln
