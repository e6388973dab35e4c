// The environment of Python: whether the device code of its libraries runs on the
// devices here.

#include <fmt/format.h>

#include <chrono>
#include <set>

#include "binaries/python_environment.h"
#include "tools/doctor/doctor.h"
#include "tools/inspect/inspected.h"
#include "tools/output/terminal.h"
#include "util/file_range.h"

namespace kiln::tools {
namespace {

using binaries::Answer;
using binaries::EnvironmentLibrary;

constexpr std::chrono::seconds kLimit{2};

/// What is found about the libraries of an environment.
struct LibraryCounts {
  std::uint64_t with_code = 0;
  std::uint64_t left_out = 0;     // for lack of time
  std::set<std::string> failing;  // "torch 2.10.0 (libtorch_cuda.so) on 7.0"
  std::set<std::string> compiling;
  std::string remedy;  // of the first of them
};

/// NVIDIA's own libraries have kernels in further forms: cuFFT's fat binaries are for
/// 7.5 alone, and it runs everywhere.
bool is_of_nvidia(const EnvironmentLibrary& library) {
  return library.distribution.starts_with("nvidia");
}

void count(const EnvironmentLibrary& library,
           const std::vector<InspectedDevice>& devices, LibraryCounts& counts) {
  const auto file = FileRange::open(library.path);
  const auto code = file ? binaries::read_device_code(*file)
                         : Result<binaries::DeviceCode>(tl::unexpected(file.error()));
  if (!code || code->images.empty())  // `kiln inspect` names those that are damaged
    return;
  ++counts.with_code;
  if (is_of_nvidia(library))
    return;
  for (const InspectedDevice& device : devices) {
    const auto verdict = binaries::judge(*code, device.capability, device.driver);
    if (verdict.answer == Answer::kRuns)
      continue;
    auto& named = verdict.answer == Answer::kFails ? counts.failing : counts.compiling;
    const std::string name = library.path.filename().native();
    named.insert(fmt::format("{} on {}: {}",
                             library.distribution.empty()
                                 ? name
                                 : fmt::format("{} ({})", library.distribution, name),
                             to_string(device.capability), verdict.reason));
    if (counts.remedy.empty() || verdict.answer == Answer::kFails)
      counts.remedy = verdict.remedy;
  }
}

LibraryCounts count_all(const std::vector<EnvironmentLibrary>& libraries,
                        const std::vector<InspectedDevice>& devices) {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  LibraryCounts counts;
  for (const EnvironmentLibrary& library : libraries) {
    if (std::chrono::steady_clock::now() < end)
      count(library, devices, counts);
    else
      ++counts.left_out;
  }
  return counts;
}

/// Three of them, so that a report stays short.
std::string some_of(const std::set<std::string>& names) {
  constexpr std::size_t kMost = 3;
  std::string text;
  std::size_t listed = 0;
  for (const std::string& name : names) {
    if (listed == kMost)
      return text + fmt::format("; and {} more", names.size() - kMost);
    text += (listed++ == 0 ? "" : "; ") + name;
  }
  return text;
}

Check check_of(const std::filesystem::path& root, const LibraryCounts& counts,
               bool has_devices) {
  Check check{"python", CheckVerdict::kOk,
              fmt::format("{}: {} with device code", root.native(),
                          counted(counts.with_code, "library", "libraries"))};
  if (counts.left_out > 0)
    check.detail +=
        fmt::format(", {} not looked at after {} s", counts.left_out, kLimit.count());
  if (!counts.failing.empty())
    check.detail +=
        fmt::format(", {} fail: {}", counts.failing.size(), some_of(counts.failing));
  if (!counts.compiling.empty())
    check.detail += fmt::format(", {} are compiled at load: {}",
                                counts.compiling.size(), some_of(counts.compiling));
  if (counts.failing.empty() && counts.compiling.empty())
    check.detail += has_devices ? ", which run on the devices here" : "";
  else
    check.verdict = CheckVerdict::kWarn;
  if (check.verdict == CheckVerdict::kWarn)
    check.remedy = fmt::format("{}; `kiln inspect --python {}` lists all",
                               counts.remedy, root.native());
  return check;
}

}  // namespace

void check_python(const Context& context, Diagnosis& diagnosis) {
  const auto root = binaries::active_environment();
  const auto folders = binaries::package_folders(root);
  if (root.empty() || folders.empty())
    return diagnosis.add({"python", CheckVerdict::kOk, "no environment of Python"});
  std::vector<EnvironmentLibrary> libraries;
  for (const auto& folder : folders) {
    if (auto found = binaries::libraries_in(folder))
      libraries.insert(libraries.end(), found->begin(), found->end());
  }
  // Why a driver cannot be used, its own check says.
  const auto devices =
      inspected_devices(context.config).value_or(std::vector<InspectedDevice>());
  diagnosis.add(check_of(root, count_all(libraries, devices), !devices.empty()));
}

}  // namespace kiln::tools
