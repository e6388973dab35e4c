#include "tools/simulation.h"

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <system_error>

#include "util/this_library.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes it
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The folder of the simulated driver: that of KILN_TEST_KIT, of an installation, of a
/// build tree. Errors: kUnavailable.
Result<fs::path> find_test_kit() {
  const fs::path here = this_program().parent_path();
  std::vector<fs::path> places{here / KILN_TEST_KIT_FROM_PROGRAM, here / "../lib"};
  if (const std::string named = variable("KILN_TEST_KIT"); !named.empty())
    places = {fs::absolute(named)};
  std::string looked_at;
  for (const fs::path& each : places) {
    const fs::path place = each.lexically_normal();
    std::error_code not_there;
    if (fs::exists(place / "driver/libcuda.so.1", not_there))
      return place;
    looked_at += (looked_at.empty() ? "" : ", ") + place.native();
  }
  return fail(ErrorCode::kUnavailable,
              "there is no simulated driver (looked at {}): install Kiln's test kit, "
              "and let KILN_TEST_KIT name its folder",
              looked_at);
}

}  // namespace

Result<Variables> simulation(const std::string& capabilities) {
  static const std::regex kList(R"([0-9]+\.[0-9](,[0-9]+\.[0-9])*)");
  if (!std::regex_match(capabilities, kList))
    return refuse("--simulate '{}': name compute capabilities, such as 8.6,9.0",
                  capabilities);
  const fs::path kit = KILN_TRY(find_test_kit());
  std::string path = (kit / "driver").native();
  if (const std::string others = variable("LD_LIBRARY_PATH"); !others.empty())
    path += ":" + others;
  return Variables{{"KILN_DRIVER", (kit / "driver/libcuda.so.1").native()},
                   {"KILN_SIMULATED_DEVICES", capabilities},
                   {"LD_LIBRARY_PATH", path}};
}

}  // namespace kiln::tools
