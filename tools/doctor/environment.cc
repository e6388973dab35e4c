// What is outside Kiln: driver and devices, every NVRTC, cuDNN, and a trial compile.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <filesystem>
#include <span>
#include <system_error>

#include "cudnn/library.h"
#include "cudnn/plan_service.h"
#include "toolchain/nvrtc_wheels.h"
#include "toolchain/packaged_headers.h"
#include "tools/doctor/doctor.h"
#include "util/library_search.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

constexpr const char* kTrialSource =
    "extern \"C\" __global__ void kiln_doctor(int* out) { *out = 1; }\n";
constexpr std::chrono::seconds kTrialLimit{60};

std::string device_text(const Device& info) {
  return fmt::format("{}, compute capability {}, {}, {} multiprocessors", info.name,
                     to_string(info.capability), format_size(info.memory_bytes),
                     info.multiprocessors);
}

void check_peers(const device::Driver& driver, Diagnosis& diagnosis) {
  for (const Device& from : diagnosis.devices) {
    for (const Device& to : diagnosis.devices) {
      if (from.ordinal == to.ordinal)
        continue;
      const auto reaches = driver.can_access_peer(from.ordinal, to.ordinal);
      const auto name = fmt::format("peer access {} to {}", from.ordinal, to.ordinal);
      if (reaches)
        diagnosis.add({name, CheckVerdict::kOk,
                       *reaches ? "direct" : "none: copies go through host memory"});
      else
        diagnosis.add({name, CheckVerdict::kFail, reaches.error().message,
                       "look at the driver's log (dmesg, nvidia-smi -q)"});
    }
  }
}

std::string architectures_text(const device::NvrtcFacts& facts) {
  std::vector<std::string> texts;
  for (const device::ComputeCapability capability : facts.architectures)
    texts.push_back(to_string(capability));
  return fmt::format("{}", fmt::join(texts, " "));
}

/// Can the chosen NVRTC build for this device?
Check device_check(BuildService& service, const Device& info) {
  const auto name = fmt::format("device {}", info.ordinal);
  const auto choice = service.toolchains().choose(info.capability);
  if (!choice)
    return {name, CheckVerdict::kFail,
            device_text(info) + "; " + choice.error().message,
            "install an NVRTC that builds for this device, or name such an NVRTC with "
            "KILN_NVRTC"};
  return {
      name, CheckVerdict::kOk,
      device_text(info) + "; kernels for it come from " + (*choice)->toolchain.name()};
}

/// Of a library that is found besides the one in use.
Check unused_check(const std::string& name, const LibraryCandidate& candidate) {
  return {name, CheckVerdict::kOk,
          fmt::format("{} ({}) is also installed, and not used",
                      candidate.path.native(), candidate.found_in)};
}

void add_other_drivers(const device::Driver& used, Diagnosis& diagnosis) {
  const auto found = find_libraries({.name = std::string(device::kDriverName),
                                     .explicit_path = {},
                                     .explicit_origin = {}},
                                    LibraryPlaces::of_process());
  if (!found)
    return;  // only an explicit path can be missing
  for (const LibraryCandidate& candidate : *found) {
    if (candidate.path != used.path())
      diagnosis.add(unused_check("driver", candidate));
  }
}

}  // namespace

void check_driver(BuildService& service, Diagnosis& diagnosis) {
  const auto driver = service.toolchains().driver();
  if (!driver)
    return diagnosis.add({"driver", CheckVerdict::kFail, driver.error().message,
                          "reinstall the NVIDIA driver, or correct KILN_DRIVER"});
  if (!*driver)
    return diagnosis.add(
        {"driver", CheckVerdict::kWarn,
         "no libcuda.so.1: kernels can be built here, not run",
         "none is needed to warm a cache; install the NVIDIA driver to run"});
  diagnosis.add({"driver", CheckVerdict::kOk,
                 fmt::format("{} supports CUDA {} ({})", (*driver)->path().native(),
                             to_string((*driver)->version()), (*driver)->found_in())});
  add_other_drivers(**driver, diagnosis);
  auto devices = (*driver)->devices();
  if (!devices)
    return diagnosis.add({"devices", CheckVerdict::kFail, devices.error().message,
                          "run nvidia-smi; look at CUDA_VISIBLE_DEVICES"});
  if (devices->empty())
    diagnosis.add({"devices", CheckVerdict::kWarn, "the driver shows no device",
                   "look at CUDA_VISIBLE_DEVICES"});
  diagnosis.devices = *std::move(devices);
  for (const Device& info : diagnosis.devices)
    diagnosis.add(device_check(service, info));
  check_peers(**driver, diagnosis);
}

/// Which CUDA headers the sources for this NVRTC find.
Check headers_check(BuildService& service, const device::Toolchain& toolchain) {
  std::vector<std::string> folders;
  for (const auto& root : toolchain.include_roots)
    folders.push_back(root.native() + (device::is_packaged_headers(root)
                                           ? " (links to headers of packages)"
                                           : ""));
  const auto name = "headers " + to_string(toolchain.facts.version);
  if (!folders.empty())
    return {name, CheckVerdict::kOk, fmt::format("{}", fmt::join(folders, ", "))};
  const bool has_packages =
      device::has_packaged_headers("/", toolchain.facts.version.major);
  if (has_packages && service.cache().is_absent())
    return {name, CheckVerdict::kOk,
            "headers of packages, in /usr/include: the first build links to them"};
  return {
      name, CheckVerdict::kWarn,
      fmt::format(
          "none beside {}: sources that include CUDA's or standard headers fail, "
          "kernels of templates do not",
          toolchain.found_at.native()),
      fmt::format(
          "install that toolkit's headers (as wheels, {}), or name a toolkit of the "
          "same major version in CUDA_HOME{}",
          device::header_wheels(toolchain.facts.version),
          has_packages ? "; headers of packages in /usr/include need a cache that can "
                         "be written, in a folder that no other user can change"
                       : "")};
}

/// The NVRTC that builds where no architecture decides.
Check choice_check(BuildService& service) {
  constexpr const char* kName = "nvrtc chosen";
  constexpr const char* kInstall =
      "install a CUDA toolkit or its NVRTC wheel, or set KILN_NVRTC";
  const auto choice = service.toolchains().choose(std::nullopt);
  if (!choice)
    return {kName, CheckVerdict::kFail, choice.error().message, kInstall};
  const auto& [toolchain, reason, warning] = **choice;
  if (!toolchain.installed())
    return {kName, CheckVerdict::kWarn,
            toolchain.name() +
                " is recorded and not installed: kernels that it built are found, no "
                "new kernel can be built",
            kInstall};
  const auto detail = fmt::format("{}: {}", toolchain.name(), reason);
  if (warning.empty())
    return {kName, CheckVerdict::kOk, detail};
  return {kName, CheckVerdict::kWarn, detail + "; " + warning,
          "set KILN_TOOLCHAIN, or warm again with the NVRTC that is wanted"};
}

void check_toolchains(BuildService& service, Diagnosis& diagnosis) {
  const auto found = service.toolchains().found();
  if (!found)
    return diagnosis.add({"nvrtc", CheckVerdict::kFail, found.error().message,
                          "correct KILN_NVRTC, or install a CUDA toolkit"});
  diagnosis.toolchains = (*found)->usable;
  for (const device::Toolchain& toolchain : (*found)->usable) {
    diagnosis.add(
        {"nvrtc " + to_string(toolchain.facts.version), CheckVerdict::kOk,
         fmt::format("{} ({}), build id {}, builds for {}", toolchain.nvrtc.native(),
                     toolchain.found_in, toolchain.id.nvrtc,
                     architectures_text(toolchain.facts))});
    diagnosis.add(headers_check(service, toolchain));
  }
  for (const device::UnusableNvrtc& unusable : (*found)->unusable) {
    diagnosis.add({"nvrtc", CheckVerdict::kWarn,
                   fmt::format("{} ({}) cannot be used: {}", unusable.path.native(),
                               unusable.found_in, unusable.error.message),
                   "reinstall that CUDA toolkit, or take it off the search path"});
  }
  diagnosis.add(choice_check(service));
  std::vector<std::string> recorded;
  for (const device::Toolchain& each : service.toolchains().recorded())
    recorded.push_back(each.name());
  if (recorded.size() > 1)
    diagnosis.add(
        {"nvrtc recorded", CheckVerdict::kOk,
         fmt::format("{}: the kernels of each are hits where nothing can be built",
                     fmt::join(recorded, ", "))});
}

void check_compile(Context& context, BuildService& service, Diagnosis& diagnosis) {
  if (auto skipped = skipped_check("compile", diagnosis))
    return diagnosis.add(*std::move(skipped));
  const auto began = std::chrono::steady_clock::now();
  const auto trial = [&]() -> Result<compile::CompileOutput> {
    const auto choice = KILN_TRY(service.toolchains().choose(std::nullopt));
    const device::Toolchain& toolchain = choice->toolchain;
    if (!toolchain.installed())
      return tl::unexpected(device::missing_nvrtc(toolchain));
    const device::Target target{{toolchain.facts.architectures.back(), {}}, {}};
    compile::CompileJob job;
    job.label = "doctor";
    job.source = kTrialSource;
    job.nvrtc = {toolchain.nvrtc, toolchain.builtins};
    job.target = target;
    job.options = {"--gpu-architecture=" + to_string(target)};
    job.time_limit = kTrialLimit;
    return service.workers().compile(job, context.stop->token());
  }();
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began);
  if (!trial)
    return diagnosis.add(
        {"compile", CheckVerdict::kFail, trial.error().message,
         "see the nvrtc checks above; KILN_WORKER names another kiln-worker"});
  diagnosis.add({"compile", CheckVerdict::kOk,
                 fmt::format("a trial kernel took {} in a fresh worker",
                             format_duration(elapsed))});
}

/// Looks for the worker that builds cuDNN's plans.
void check_plan_worker(BuildService& service, Diagnosis& diagnosis) {
  const auto worker = PlanService::find_worker(service.config());
  diagnosis.add(
      {"plans", worker ? CheckVerdict::kOk : CheckVerdict::kWarn,
       worker ? worker->native() : worker.error().message,
       worker ? "" : "build Kiln where the headers of cuDNN and its frontend are"});
}

/// What a worker says of the cuDNN that is used: it may end the process that calls it.
Check used_cudnn(PlanService& plans, const LibraryCandidate& candidate) {
  Check check{"cudnn", CheckVerdict::kOk,
              fmt::format("{} ({})", candidate.path.native(), candidate.found_in)};
  const auto asked = plans.ask_library();
  if (!asked || !*asked) {
    check.verdict = CheckVerdict::kWarn;
    check.detail += asked ? ": it has gone" : ": " + asked.error().message;
    check.remedy =
        "until then Kiln's own attention kernels run instead; reinstall cuDNN, or set "
        "KILN_CUDNN";
    return check;
  }
  const compile::CudnnDescription& is = (*asked)->is;
  check.detail += fmt::format(", version {}, which is used", is.version);
  std::error_code gone;
  const auto graph = std::filesystem::canonical(is.graph.path, gone);
  if (!gone && graph.parent_path() != candidate.path.parent_path()) {
    check.verdict = CheckVerdict::kWarn;
    check.detail +=
        fmt::format(", with the parts of another cuDNN: {}", graph.native());
    check.remedy =
        "look at LD_LIBRARY_PATH: all libraries of a cuDNN must be of one version";
  }
  return check;
}

void check_cudnn(Context& context, BuildService& service, Diagnosis& diagnosis) {
  const auto found = attention::find_cudnn(service.config().cudnn.value_or(""),
                                           LibraryPlaces::of_process());
  if (!found)
    return diagnosis.add(
        {"cudnn", CheckVerdict::kFail, found.error().message, "correct KILN_CUDNN"});
  if (found->empty())
    return diagnosis.add({"cudnn", CheckVerdict::kWarn, "no libcudnn.so.9 found",
                          "install cuDNN 9, or set KILN_CUDNN"});
  PlanService plans(service, context.stop->token());
  diagnosis.add(used_cudnn(plans, found->front()));
  for (const LibraryCandidate& candidate : std::span(*found).subspan(1))
    diagnosis.add(unused_check("cudnn", candidate));
  check_plan_worker(service, diagnosis);
}

}  // namespace kiln::tools
