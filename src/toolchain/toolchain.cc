#include "toolchain/toolchain.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "codec/library_id.h"
#include "device/compatibility.h"
#include "toolchain/nvrtc_files.h"
#include "toolchain/nvrtc_wheels.h"
#include "toolchain/toolchain_files.h"
#include "util/elf.h"
#include "util/log.h"
#include "util/posix_error.h"
#include "util/text.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln::device {
namespace {

namespace fs = std::filesystem;

Result<NvrtcFacts> ask(const ToolchainSearch& search, const Toolchain& toolchain) {
  if (!search.ask)
    return fail(ErrorCode::kUnavailable, "no worker can tell its version");
  NvrtcFacts facts = KILN_TRY(search.ask(toolchain.nvrtc, toolchain.builtins));
  if (facts.architectures.empty())
    return fail(ErrorCode::kUnavailable, "it names no supported architecture");
  std::sort(facts.architectures.begin(), facts.architectures.end());
  return facts;
}

// "" if there are none, which only an explicit NVRTC may have.
Result<std::string> builtins_id(const Toolchain& toolchain) {
  if (!toolchain.builtins.empty())
    return library_id(toolchain.builtins);
  if (toolchain.is_explicit)
    return std::string();
  return fail(ErrorCode::kUnavailable, "no libnvrtc-builtins lies beside {}",
              toolchain.nvrtc.native());
}

// Corrects the builtins once the version is known: NVRTC's file name may lack the minor
// version, and builtins of several versions may lie beside it.
Result<void> correct_builtins(Toolchain& toolchain) {
  const auto exact = builtins_beside(toolchain.nvrtc, toolchain.facts.version);
  if (!exact || *exact == toolchain.builtins)
    return {};
  toolchain.builtins = *exact;
  toolchain.id.builtins = KILN_TRY(builtins_id(toolchain));
  return {};
}

// May fail: a hint only saves work, and the cache root may be read-only.
void keep_hint(const ToolchainSearch& search, const Toolchain& toolchain) {
  if (search.folder.empty())
    return;
  const auto written = write_hint(search.folder, toolchain.id.nvrtc, toolchain.facts);
  if (!written)
    log(LogLevel::kDebug, {"no toolchain hint kept: ", written.error().message});
}

Result<Toolchain> describe(const LibraryCandidate& candidate, bool is_explicit,
                           const ToolchainSearch& search) {
  Toolchain toolchain;
  toolchain.nvrtc = candidate.path;
  toolchain.found_at = candidate.found_at;
  toolchain.found_in = candidate.found_in;
  toolchain.is_explicit = is_explicit;
  toolchain.id.nvrtc = KILN_TRY(read_build_id(candidate.path));
  toolchain.builtins =
      builtins_beside(candidate.path, std::nullopt).value_or(fs::path());
  toolchain.id.builtins = KILN_TRY(builtins_id(toolchain));

  auto hint = read_hint(search.folder, toolchain.id.nvrtc);
  toolchain.facts = hint ? *hint : KILN_TRY(ask(search, toolchain));
  KILN_TRY(correct_builtins(toolchain));
  if (!hint)
    keep_hint(search, toolchain);
  return toolchain;
}

std::vector<fs::path> include_roots(const Toolchain& toolchain,
                                    const ToolchainSearch& search) {
  return include_roots_of({.nvrtc = toolchain.nvrtc,
                           .found_at = toolchain.found_at,
                           .toolkits = search.places.named_toolkits,
                           .version = toolchain.facts.version,
                           .system_root = search.places.system_root,
                           .links = search.links});
}

bool accepted(const Toolchain& toolchain, const ToolchainCriteria& criteria) {
  if (!criteria.driver)
    return true;
  ImageKind kind = ImageKind::kCubin;
  if (criteria.build_for) {
    if (const auto target = choose_target(*criteria.build_for, {}, toolchain.facts))
      kind = target->kind;
  }
  return accepted_by(*criteria.driver, kind, toolchain.facts.version);
}

// The newest; among equals the first found. `list` must not be empty.
const Toolchain& newest(const std::vector<const Toolchain*>& list) {
  return **std::max_element(list.begin(), list.end(),
                            [](const Toolchain* a, const Toolchain* b) {
                              return a->facts.version < b->facts.version;
                            });
}

std::string named(const Toolchain& toolchain) {
  return toolchain.installed()
             ? fmt::format("{} ({})", toolchain.name(), toolchain.nvrtc.native())
             : toolchain.name();
}

ToolchainChoice choice_of(const Toolchain& toolchain, std::string reason,
                          const ToolchainCriteria& criteria) {
  ToolchainChoice choice{toolchain, std::move(reason), ""};
  if (!criteria.recorded.empty() && criteria.recorded.front().id != toolchain.id) {
    choice.warning = fmt::format(
        "this cache was warmed with {}, and {} is taken, because {}: kernels that are "
        "not yet built with it are built anew; KILN_TOOLCHAIN={} asks for the NVRTC of "
        "the warm",
        named(criteria.recorded.front()), named(toolchain), choice.reason,
        criteria.recorded.front().id.nvrtc.substr(0, 8));
  }
  if (toolchain.installed() && !accepted(toolchain, criteria)) {
    choice.warning += fmt::format(
        "{}the driver is for CUDA {} and does not load kernels that {} builds; install "
        "a newer driver, or NVRTC {}",
        choice.warning.empty() ? "" : "; ", to_string(*criteria.driver),
        named(toolchain), to_string(*criteria.driver));
  }
  return choice;
}

// What to install for the driver that is asked for.
std::string remedy(const ToolchainCriteria& criteria) {
  const NvrtcWheel* const wheel = wheel_for(*criteria.driver, criteria.build_for);
  if (wheel == nullptr)
    return "install an NVRTC for that driver, or a newer driver";
  return fmt::format(
      "`pip install --no-deps --target DIR {}` brings an NVRTC for that driver: "
      "KILN_NVRTC=DIR/{} names it",
      wheel->requirement, wheel->library);
}

Result<void> check_supports(const Toolchain& toolchain,
                            const ToolchainCriteria& criteria) {
  if (!criteria.build_for)
    return {};
  auto choice = choose_target(*criteria.build_for, {}, toolchain.facts);
  if (choice)
    return {};
  Error error = std::move(choice).error();
  if (criteria.only_for_driver && error.code == ErrorCode::kUnavailable)
    error.message += "; " + remedy(criteria);
  return tl::unexpected(std::move(error));
}

// `why` it would be taken.
Result<void> check_loads(const Toolchain& toolchain, std::string_view why,
                         const ToolchainCriteria& criteria) {
  if (!criteria.only_for_driver || accepted(toolchain, criteria))
    return {};
  return fail(ErrorCode::kUnavailable,
              "a driver for CUDA {} does not load kernels that {} builds, and {}; {}",
              to_string(*criteria.driver), named(toolchain), why, remedy(criteria));
}

// No NVRTC found builds what the driver that is asked for takes.
tl::unexpected<Error> none_for_driver(std::span<const Toolchain> found,
                                      const ToolchainCriteria& criteria) {
  std::vector<std::string> names;
  for (const Toolchain& each : found) names.push_back(named(each));
  return fail(ErrorCode::kUnavailable,
              "no NVRTC found here builds{} kernels that a driver for CUDA {} loads "
              "(found: {}); {}",
              criteria.build_for ? " for " + to_string(*criteria.build_for) : "",
              to_string(*criteria.driver),
              names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")),
              remedy(criteria));
}

Result<ToolchainChoice> choose_wanted(std::span<const Toolchain> found,
                                      const ToolchainCriteria& criteria) {
  std::string reason = fmt::format("{} is {}", criteria.wanted_by, criteria.wanted);
  std::vector<std::string> known;
  for (const Toolchain& each : found) {
    if (matches(each, criteria.wanted)) {
      KILN_TRY(check_supports(each, criteria));
      KILN_TRY(check_loads(each, reason, criteria));
      return choice_of(each, std::move(reason), criteria);
    }
    known.push_back(named(each));
  }
  if (!criteria.recorded.empty()) {
    const Toolchain& recorded = criteria.recorded.front();
    if (matches(recorded, criteria.wanted) && check_loads(recorded, reason, criteria))
      return choice_of(recorded, std::move(reason), criteria);
    if (std::none_of(found.begin(), found.end(),
                     [&](const Toolchain& each) { return each.id == recorded.id; }))
      known.push_back(named(recorded) + " (recorded, not installed)");
  }
  return fail(ErrorCode::kUnavailable,
              "{} is {}, and no NVRTC that was found matches; known: {}",
              criteria.wanted_by, criteria.wanted,
              known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
}

// Called if no NVRTC found can build it.
Result<ToolchainChoice> choose_recorded(std::span<const Toolchain> found,
                                        const ToolchainCriteria& criteria) {
  for (const Toolchain& each : criteria.recorded) {
    if (check_supports(each, criteria) && check_loads(each, "", criteria))
      return ToolchainChoice{each,
                             "it is recorded; it is not installed here, so that only "
                             "kernels in the cache can be had",
                             ""};
  }
  if (found.empty() && criteria.only_for_driver)
    return none_for_driver(found, criteria);
  if (found.empty()) {
    return fail(ErrorCode::kUnavailable,
                "no NVRTC was found; install the CUDA toolkit or NVIDIA's NVRTC wheel, "
                "or name the library in KILN_NVRTC");
  }
  std::vector<const Toolchain*> all;
  for (const Toolchain& each : found) all.push_back(&each);
  auto supported = check_supports(newest(all), criteria);
  if (supported ||
      (criteria.only_for_driver && supported.error().code == ErrorCode::kUnavailable))
    return none_for_driver(found, criteria);
  return tl::unexpected(std::move(supported).error());
}

}  // namespace

bool matches(const Toolchain& toolchain, std::string_view wanted) {
  constexpr std::size_t kFewestDigits = 8;
  return wanted == to_string(toolchain.facts.version) || wanted == toolchain.name() ||
         (wanted.size() >= kFewestDigits && toolchain.id.nvrtc.starts_with(wanted));
}

std::string to_named(const Toolchain& toolchain) {
  return fmt::format("{} {} {}", to_string(toolchain.facts.version),
                     to_string(toolchain.id), toolchain.nvrtc.native());
}

Result<Toolchain> parse_named(std::string_view text) {
  Toolchain toolchain;
  const auto word = [&text](std::string_view end) {
    return std::string(next_part(text, end));
  };
  const std::string_view whole = text;
  const auto version = parse_cuda_version(word(" "));
  toolchain.id.nvrtc = word("+");
  toolchain.id.builtins = word(" ");
  toolchain.nvrtc = text;
  if (!version || toolchain.id.nvrtc.empty() || !toolchain.nvrtc.is_absolute())
    return refuse(
        "'{}' is no toolchain: <version> <build id>+<build id of the builtins> <path>",
        whole);
  toolchain.facts.version = *version;
  return toolchain;
}

Error missing_named(const Toolchain& wanted) {
  const CudaVersion version = wanted.facts.version;
  return {ErrorCode::kUnavailable,
          fmt::format(
              "the program's NVRTC {}, of build id {}, is not on this machine; `pip "
              "install 'nvidia-cuda-nvrtc{}=={}.*'` brings an NVRTC of that version",
              to_string(version), wanted.id.nvrtc, wheel_suffix(version),
              to_string(version))};
}

std::string to_string(const ToolchainId& id) {
  return id.nvrtc + "+" + id.builtins;
}

std::string Toolchain::name() const {
  return fmt::format("nvrtc-{}-{}", to_string(facts.version), id.nvrtc.substr(0, 8));
}

Result<FoundToolchains> discover_toolchains(const ToolchainSearch& search) {
  const auto candidates = KILN_TRY(find_libraries(
      {"libnvrtc.so", search.explicit_nvrtc, std::string(search.nvrtc_by)},
      search.places));
  FoundToolchains found;
  for (const LibraryCandidate& candidate : candidates) {
    const bool is_explicit =
        !search.explicit_nvrtc.empty() && &candidate == &candidates.front();
    auto toolchain = describe(candidate, is_explicit, search);
    if (toolchain) {
      toolchain->include_roots = include_roots(*toolchain, search);
      found.usable.push_back(*std::move(toolchain));
      continue;
    }
    Error error = std::move(toolchain).error();
    // Neither says anything about that NVRTC, and another must not take its place.
    if (error.code == ErrorCode::kCancelled || error.from_outside)
      return tl::unexpected(std::move(error));
    if (is_explicit) {
      return fail(ErrorCode::kUnavailable, "{} is {}, which cannot be used: {}",
                  search.nvrtc_by, candidate.path.native(), error.message);
    }
    found.unusable.push_back({candidate.path, candidate.found_in, std::move(error)});
  }
  // Without a free descriptor no folder can be searched.
  if (found.usable.empty() && !UniqueFd(::open("/", O_PATH | O_CLOEXEC)))
    return fail(ErrorCode::kUnavailable,
                posix_error("open", "/", errno).value().message +
                    ": no NVRTC can be searched for");
  return found;
}

Result<Toolchain> describe_toolchain(const fs::path& nvrtc,
                                     const ToolchainSearch& search) {
  return describe({.path = nvrtc, .found_in = "the program", .found_at = nvrtc}, true,
                  search);
}

Result<ToolchainChoice> choose_toolchain(std::span<const Toolchain> found,
                                         const ToolchainCriteria& criteria) {
  for (const Toolchain& each : found) {
    if (!each.is_explicit)
      continue;
    std::string reason = each.found_in + " names it";
    KILN_TRY(check_supports(each, criteria));
    KILN_TRY(check_loads(each, reason, criteria));
    return choice_of(each, std::move(reason), criteria);
  }
  if (!criteria.wanted.empty())
    return choose_wanted(found, criteria);

  std::vector<const Toolchain*> can_build;
  std::vector<const Toolchain*> can_run;
  for (const Toolchain& each : found) {
    if (!check_supports(each, criteria))
      continue;
    const bool runs = accepted(each, criteria);
    if (!runs && criteria.only_for_driver)
      continue;
    can_build.push_back(&each);
    if (!criteria.recorded.empty() && each.id == criteria.recorded.front().id)
      return choice_of(each, "the last warm recorded it", criteria);
    if (runs)
      can_run.push_back(&each);
  }
  if (can_build.empty())  // or none of them for the driver that is asked for
    return choose_recorded(found, criteria);
  if (can_run.empty())
    return choice_of(newest(can_build), "it is the newest found", criteria);
  return choice_of(newest(can_run),
                   criteria.only_for_driver ? "it is the newest found for that driver"
                   : criteria.driver ? "it is the newest found that the driver accepts"
                                     : "it is the newest found",
                   criteria);
}

Error missing_nvrtc(const Toolchain& recorded) {
  return {
      ErrorCode::kUnavailable,
      fmt::format("the kernel is not in the cache, and {}, which the last warm used, "
                  "is not installed here; install NVRTC {}, name its library in "
                  "KILN_NVRTC, or warm this kernel where that NVRTC is installed",
                  recorded.name(), to_string(recorded.facts.version))};
}

}  // namespace kiln::device
