#include "binaries/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

#include "device/compatibility.h"

namespace kiln::binaries {
namespace {

using device::ImageKind;

/// What a driver does with one set of images.
struct Choice {
  Answer answer = Answer::kFails;
  device::Target target{};          // what it takes, unless it fails
  std::string refused_by_driver{};  // why, if an image fits the device
  ImageKind refused_kind = ImageKind::kCubin;
};

Choice choose(const std::vector<ImageDescription>& images, ComputeCapability device,
              std::optional<device::CudaVersion> driver) {
  Choice best;
  for (const ImageDescription& image : images) {
    if (!runs_on(image.target, device))
      continue;
    const ImageKind kind = image.target.kind;
    if (driver && image.toolkit && !accepted_by(*driver, kind, *image.toolkit)) {
      best.refused_by_driver = why_not(*driver, kind, *image.toolkit);
      best.refused_kind = kind;
      continue;
    }
    const Answer answer =
        kind == ImageKind::kCubin ? Answer::kRuns : Answer::kCompilesAtLoad;
    // Of two that fit, the driver takes the nearer one.
    if (answer < best.answer || (answer == best.answer && best.target < image.target)) {
      best.answer = answer;
      best.target = image.target;
    }
  }
  return best;
}

/// The choices for all sets of images together.
struct Tally {
  std::uint64_t runs = 0;
  std::uint64_t compiles = 0;
  std::uint64_t fails = 0;
  std::set<device::Target> taken{};  // by those of the verdict
  Choice refused{};                  // one that the driver refuses, if any

  [[nodiscard]] std::uint64_t all() const { return runs + compiles + fails; }
  [[nodiscard]] Answer answer() const {
    if (runs + compiles == 0)
      return Answer::kFails;
    return runs >= compiles ? Answer::kRuns : Answer::kCompilesAtLoad;
  }
};

Tally tally(const DeviceCode& code, ComputeCapability device,
            std::optional<device::CudaVersion> driver) {
  Tally sum;
  std::set<device::Target> cubins;
  std::set<device::Target> ptx;
  for (const auto& [images, count] : code.choices) {
    const Choice choice = choose(images, device, driver);
    if (!choice.refused_by_driver.empty())
      sum.refused = choice;
    switch (choice.answer) {
      case Answer::kRuns:
        sum.runs += count;
        cubins.insert(choice.target);
        break;
      case Answer::kCompilesAtLoad:
        sum.compiles += count;
        ptx.insert(choice.target);
        break;
      case Answer::kFails:
        sum.fails += count;
        break;
    }
  }
  sum.taken = sum.answer() == Answer::kRuns ? cubins : ptx;
  return sum;
}

std::string names_of(const std::set<device::Target>& targets) {
  std::vector<std::string> names;
  for (const device::Target target : targets) names.push_back(to_string(target));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// "; of 480 fat binaries 4 have no code for it"
std::string exceptions_text(const Tally& sum) {
  std::string text;
  if (sum.answer() == Answer::kRuns && sum.compiles > 0)
    text += fmt::format(", {} have only PTX, which is compiled at load", sum.compiles);
  if (sum.answer() == Answer::kCompilesAtLoad && sum.runs > 0)
    text += fmt::format(", {} have SASS", sum.runs);
  if (sum.fails > 0)
    text += fmt::format(", {} have no code for it", sum.fails);
  if (text.empty())
    return text;
  return fmt::format("; of {} fat binaries{}", sum.all(), text.substr(1));
}

std::string sm_name(ComputeCapability device) {
  return to_string(device::Target{{device, {}}, ImageKind::kCubin});
}

/// "TORCH_CUDA_ARCH_LIST="9.0", or nvcc -gencode arch=compute_90,code=sm_90"
std::string build_options(ComputeCapability device) {
  return fmt::format("TORCH_CUDA_ARCH_LIST=\"{}\", or nvcc -gencode arch={},code={}",
                     to_string(device),
                     to_string(device::Target{{device, {}}, ImageKind::kPtx}),
                     sm_name(device));
}

Verdict refused(const Choice& choice, ComputeCapability device) {
  const bool is_ptx = choice.refused_kind == ImageKind::kPtx;
  return {Answer::kFails,
          fmt::format("{}: {}",
                      is_ptx ? "the provided PTX was compiled with an unsupported "
                               "toolchain (CUDA error 222)"
                             : "CUDA driver version is insufficient for CUDA runtime "
                               "version (CUDA error 35)",
                      choice.refused_by_driver),
          is_ptx ? fmt::format("install a newer driver, or a build with {} code: {}",
                               sm_name(device), build_options(device))
                 : "install a newer driver, or a build by an older toolkit"};
}

/// Whether code for the device comes of the image once it is linked.
bool can_be_linked_for(const ImageDescription& image, ComputeCapability device) {
  device::Target target = image.target;
  if (target.kind == ImageKind::kLtoIr)
    target.kind = ImageKind::kPtx;  // of which the linker makes code, too
  return image.is_relocatable && runs_on(target, device);
}

/// Of a file all of whose code must be linked.
Verdict unlinked(ComputeCapability device) {
  return {Answer::kFails,
          "no device loads it before it is linked: it has only relocatable code or "
          "LTO-IR",
          fmt::format("link it: nvcc -dlink -arch={}, or nvJitLink", sm_name(device))};
}

Verdict no_image(const DeviceCode& code, ComputeCapability device) {
  std::set<device::Target> there;
  for (const auto& [image, totals] : code.images) {
    if (!image.is_relocatable || code.choices.empty())
      there.insert(image.target);
  }
  return {Answer::kFails,
          fmt::format("no kernel image is available for execution on the device (CUDA "
                      "error 209): it has {}",
                      names_of(there)),
          fmt::format("install a build with {} code, or build it: {}", sm_name(device),
                      build_options(device))};
}

}  // namespace

Verdict judge(const DeviceCode& code, ComputeCapability device,
              std::optional<device::CudaVersion> driver) {
  const bool is_linked = !code.choices.empty();
  if (!is_linked && std::ranges::any_of(code.images, [&](const auto& each) {
        return can_be_linked_for(each.first, device);
      }))
    return unlinked(device);
  const Tally sum = tally(code, device, driver);
  switch (sum.answer()) {
    case Answer::kRuns:
      return {Answer::kRuns,
              fmt::format("it has {}{}", names_of(sum.taken), exceptions_text(sum)),
              ""};
    case Answer::kCompilesAtLoad:
      return {Answer::kCompilesAtLoad,
              fmt::format("the driver compiles its PTX for {} at the first load, which "
                          "takes long{}",
                          names_of(sum.taken), exceptions_text(sum)),
              fmt::format("install a build with {} code, or build it: {}",
                          sm_name(device), build_options(device))};
    case Answer::kFails:
      break;
  }
  if (!sum.refused.refused_by_driver.empty())
    return refused(sum.refused, device);
  return no_image(code, device);
}

}  // namespace kiln::binaries
