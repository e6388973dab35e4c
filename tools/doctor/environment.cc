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
  return fmt::format("{}: {}, compute capability {}, {}, {} multiprocessors",
                     info.ordinal, info.name, to_string(info.capability),
                     format_size(info.memory_bytes), info.multiprocessors);
}

void check_peers(const device::Driver& driver, Diagnosis& diagnosis) {
  for (const Device& from : diagnosis.devices) {
    for (const Device& to : diagnosis.devices) {
      if (from.ordinal == to.ordinal)
        continue;
      const auto reaches = driver.can_access_peer(from.ordinal, to.ordinal);
      Check check{fmt::format("peer access {} to {}", from.ordinal, to.ordinal),
                  CheckVerdict::kOk, "", ""};
      if (!reaches) {
        check.verdict = CheckVerdict::kFail;
        check.detail = reaches.error().message;
        check.remedy = "look at the driver's log (dmesg, nvidia-smi -q)";
      } else {
        check.detail = *reaches ? "direct" : "none: copies go through host memory";
      }
      diagnosis.checks.push_back(std::move(check));
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
  Check check{fmt::format("device {}", info.ordinal), CheckVerdict::kOk,
              device_text(info), ""};
  const auto choice = service.toolchains().choose(info.capability);
  if (!choice) {
    check.verdict = CheckVerdict::kFail;
    check.detail += "; " + choice.error().message;
    check.remedy = "install an NVRTC that builds for it, or name one with KILN_NVRTC";
  } else {
    check.detail += "; kernels for it come from " + (*choice)->toolchain.name();
  }
  return check;
}

}  // namespace

namespace {

void add_other_drivers(const device::Driver& used, Diagnosis& diagnosis) {
  const auto found = find_libraries({.name = std::string(device::kDriverName),
                                     .explicit_path = {},
                                     .explicit_origin = {}},
                                    LibraryPlaces::of_process());
  if (!found)
    return;  // only an explicit path can be missing
  for (const LibraryCandidate& candidate : *found) {
    if (candidate.path != used.path())
      diagnosis.checks.push_back(
          {"driver", CheckVerdict::kOk,
           fmt::format("{} ({}) is there too, and not used", candidate.path.native(),
                       candidate.found_in),
           ""});
  }
}

}  // namespace

void check_driver(BuildService& service, Diagnosis& diagnosis) {
  const auto driver = service.toolchains().driver();
  Check check{"driver", CheckVerdict::kOk, "", ""};
  if (!driver) {
    check.verdict = CheckVerdict::kFail;
    check.detail = driver.error().message;
    check.remedy = "reinstall the NVIDIA driver, or correct KILN_DRIVER";
    diagnosis.checks.push_back(std::move(check));
    return;
  }
  if (!*driver) {
    check.verdict = CheckVerdict::kWarn;
    check.detail = "no libcuda.so.1: kernels can be built here, not run";
    check.remedy = "none is needed to warm a cache; install the NVIDIA driver to run";
    diagnosis.checks.push_back(std::move(check));
    return;
  }
  check.detail = fmt::format("{} supports CUDA {} ({})", (*driver)->path().native(),
                             to_string((*driver)->version()), (*driver)->found_in());
  diagnosis.checks.push_back(std::move(check));
  add_other_drivers(**driver, diagnosis);
  auto devices = (*driver)->devices();
  if (!devices) {
    diagnosis.checks.push_back({"devices", CheckVerdict::kFail, devices.error().message,
                                "run nvidia-smi; look at CUDA_VISIBLE_DEVICES"});
    return;
  }
  if (devices->empty()) {
    diagnosis.checks.push_back({"devices", CheckVerdict::kWarn,
                                "the driver shows no device",
                                "look at CUDA_VISIBLE_DEVICES"});
  }
  diagnosis.devices = *std::move(devices);
  for (const Device& info : diagnosis.devices)
    diagnosis.checks.push_back(device_check(service, info));
  check_peers(**driver, diagnosis);
}

/// Which CUDA headers the sources for this NVRTC find.
Check headers_check(BuildService& service, const device::Toolchain& toolchain) {
  std::vector<std::string> folders;
  for (const auto& root : toolchain.include_roots)
    folders.push_back(root.native() + (device::is_packaged_headers(root)
                                           ? " (links to those of packages)"
                                           : ""));
  Check check{"headers " + to_string(toolchain.facts.version), CheckVerdict::kOk,
              fmt::format("{}", fmt::join(folders, ", ")), ""};
  const cache::Cache& cache = service.cache();
  if (folders.empty() &&
      device::has_packaged_headers("/", toolchain.facts.version.major) &&
      cache.is_absent()) {
    check.detail = "those of packages, in /usr/include: the first build links to them";
  } else if (folders.empty()) {
    check.verdict = CheckVerdict::kWarn;
    check.detail = fmt::format(
        "none beside {}: sources that include CUDA's or standard headers fail, kernels "
        "of templates do not",
        toolchain.found_at.native());
    check.remedy = fmt::format(
        "install that toolkit's headers (as wheels, {}), or name a toolkit of the same "
        "major version in CUDA_HOME{}",
        device::header_wheels(toolchain.facts.version),
        device::has_packaged_headers("/", toolchain.facts.version.major)
            ? "; those of packages in /usr/include need a cache that can be written, "
              "in a "
              "folder that nobody else can change"
            : "");
  }
  return check;
}

void check_toolchains(BuildService& service, Diagnosis& diagnosis) {
  const auto found = service.toolchains().found();
  if (!found) {
    diagnosis.checks.push_back({"nvrtc", CheckVerdict::kFail, found.error().message,
                                "correct KILN_NVRTC, or install a CUDA toolkit"});
    return;
  }
  diagnosis.toolchains = (*found)->usable;
  for (const device::Toolchain& toolchain : (*found)->usable) {
    diagnosis.checks.push_back(
        {"nvrtc " + to_string(toolchain.facts.version), CheckVerdict::kOk,
         fmt::format("{} ({}), build id {}, builds for {}", toolchain.nvrtc.native(),
                     toolchain.found_in, toolchain.id.nvrtc,
                     architectures_text(toolchain.facts)),
         ""});
    diagnosis.checks.push_back(headers_check(service, toolchain));
  }
  for (const device::UnusableNvrtc& unusable : (*found)->unusable) {
    diagnosis.checks.push_back(
        {"nvrtc", CheckVerdict::kWarn,
         fmt::format("{} ({}) cannot be used: {}", unusable.path.native(),
                     unusable.found_in, unusable.error.message),
         "reinstall that CUDA toolkit, or take it off the search path"});
  }
  const auto choice = service.toolchains().choose(std::nullopt);
  Check check{"nvrtc chosen", CheckVerdict::kOk, "", ""};
  if (!choice) {
    check.verdict = CheckVerdict::kFail;
    check.detail = choice.error().message;
    check.remedy = "install a CUDA toolkit or its NVRTC wheel, or set KILN_NVRTC";
  } else if (!(*choice)->toolchain.installed()) {
    check.verdict = CheckVerdict::kWarn;
    check.detail = (*choice)->toolchain.name() +
                   " is recorded and not installed: what "
                   "it built is served, nothing new can be built";
    check.remedy = "install a CUDA toolkit or its NVRTC wheel, or set KILN_NVRTC";
  } else {
    check.detail =
        fmt::format("{}: {}", (*choice)->toolchain.name(), (*choice)->reason);
    if (!(*choice)->warning.empty()) {
      check.verdict = CheckVerdict::kWarn;
      check.detail += "; " + (*choice)->warning;
      check.remedy = "set KILN_TOOLCHAIN, or warm again with the one that is wanted";
    }
  }
  diagnosis.checks.push_back(std::move(check));
}

void check_compile(Context& context, BuildService& service, Diagnosis& diagnosis) {
  if (auto skipped = skipped_check("compile", diagnosis)) {
    diagnosis.checks.push_back(*std::move(skipped));
    return;
  }
  Check check{"compile", CheckVerdict::kOk, "", ""};
  const auto began = std::chrono::steady_clock::now();
  const auto trial = [&]() -> Result<compile::CompileOutput> {
    const auto choice = service.toolchains().choose(std::nullopt);
    if (!choice)
      return tl::unexpected(choice.error());
    const device::Toolchain& toolchain = (*choice)->toolchain;
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
  if (!trial) {
    check.verdict = CheckVerdict::kFail;
    check.detail = trial.error().message;
    check.remedy = "see the nvrtc checks above; KILN_WORKER names another kiln-worker";
  } else {
    check.detail = fmt::format("a trial kernel took {} in a fresh worker",
                               format_duration(elapsed));
  }
  diagnosis.checks.push_back(std::move(check));
}

/// Looks for the worker that builds cuDNN's plans.
void check_plan_worker(BuildService& service, Diagnosis& diagnosis) {
  const auto worker = PlanService::find_worker(service.config());
  diagnosis.checks.push_back(
      {"plans", worker ? CheckVerdict::kOk : CheckVerdict::kWarn,
       worker ? worker->native() : worker.error().message,
       worker ? "" : "build Kiln where the headers of cuDNN and its frontend are"});
}

/// What a worker says of the cuDNN that is used: it may end the process that calls it.
Check used_cudnn(PlanService& plans, const LibraryCandidate& candidate) {
  Check check{"cudnn", CheckVerdict::kOk,
              fmt::format("{} ({})", candidate.path.native(), candidate.found_in), ""};
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
  check.detail += fmt::format(", version {}, the one that is used", is.version);
  std::error_code gone;
  const auto graph = std::filesystem::canonical(is.graph.path, gone);
  if (!gone && graph.parent_path() != candidate.path.parent_path()) {
    check.verdict = CheckVerdict::kWarn;
    check.detail += fmt::format(", with the parts of another: {}", graph.native());
    check.remedy =
        "look at LD_LIBRARY_PATH: all libraries of a cuDNN must be of one version";
  }
  return check;
}

void check_cudnn(Context& context, BuildService& service, Diagnosis& diagnosis) {
  const auto found = attention::find_cudnn(service.config().cudnn.value_or(""),
                                           LibraryPlaces::of_process());
  if (!found) {
    diagnosis.checks.push_back(
        {"cudnn", CheckVerdict::kFail, found.error().message, "correct KILN_CUDNN"});
    return;
  }
  if (found->empty()) {
    diagnosis.checks.push_back({"cudnn", CheckVerdict::kWarn, "no libcudnn.so.9 found",
                                "install cuDNN 9, or set KILN_CUDNN"});
    return;
  }
  PlanService plans(service, context.stop->token());
  diagnosis.checks.push_back(used_cudnn(plans, found->front()));
  for (const LibraryCandidate& candidate : std::span(*found).subspan(1)) {
    diagnosis.checks.push_back(
        {"cudnn", CheckVerdict::kOk,
         fmt::format("{} ({}) is there too, and not used", candidate.path.native(),
                     candidate.found_in),
         ""});
  }
  check_plan_worker(service, diagnosis);
}

}  // namespace kiln::tools
