// Launches that the interpreter of PTX runs.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <utility>

#include "tests/support/simulated_driver/computing.h"
#include "tests/support/simulated_driver/simulator.h"
#include "tests/support/simulated_driver/written.h"

namespace kiln::simulated {
namespace {

/// Memory of the driver, of the module, and if asked for of the process.
class DeviceMemory final : public ptx::GlobalMemory {
 public:
  explicit DeviceMemory(const Computation& of) : of_(of) {}

  std::optional<ptx::Stretch> find(std::uint64_t address) override {
    if (auto own = find_allocated(address))
      return own;
    if (auto variable = ptx::find(of_.code->variables, address))
      return variable;
    return of_.how.is_host_memory_seen ? find_mapped(address) : std::nullopt;
  }

  [[nodiscard]] std::string describe(std::uint64_t address) const override {
    Process& all = process();
    const MutexLock lock(all.mutex);
    const auto& allocations = all.simulator.allocations;
    const auto after = allocations.upper_bound(address);
    if (after == allocations.begin())
      return fmt::format("{:#x} is no memory of the device", address);
    const auto& [begin, allocation] = *std::prev(after);
    return fmt::format(
        "{:#x} lies {} bytes from the start of the nearest memory below, which has {} "
        "bytes and is at {:#x}",
        address, address - begin, allocation.size, begin);
  }

 private:
  std::optional<ptx::Stretch> find_allocated(std::uint64_t address) {
    Process& all = process();
    const MutexLock lock(all.mutex);
    const auto found = all.simulator.allocation_at(address);
    if (found == all.simulator.allocations.end())
      return std::nullopt;
    const auto set = written().find(found->first);
    watched_.insert(set);
    return ptx::Stretch{.begin = found->first,
                        .end = found->first + found->second.size,
                        .set = set == nullptr ? nullptr : set->data()};
  }

  // One stretch of /proc/self/maps.
  static std::optional<ptx::Stretch> find_mapped(std::uint64_t address) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      ptx::Stretch stretch;
      const char* const end = line.data() + line.size();
      const auto begin = std::from_chars(line.data(), end, stretch.begin, 16);
      if (begin.ec != std::errc() || begin.ptr == end)
        continue;
      const auto last = std::from_chars(begin.ptr + 1, end, stretch.end, 16);
      const std::string_view rest(last.ptr, static_cast<std::size_t>(end - last.ptr));
      if (address < stretch.begin || address >= stretch.end || !rest.starts_with(" r"))
        continue;
      stretch.is_read_only = rest.substr(2, 1) != "w";
      return stretch;
    }
    return std::nullopt;
  }

  const Computation& of_;
  std::set<std::shared_ptr<Written::Bytes>> watched_{};  // of all stretches
};

// A driver does so when it loads the module; here the PTX is known only now. What was
// written since then stays, unless it is what the cubin has in the place of the
// address.
void set_initial_addresses(const Module& module, const ModuleCode& code) {
  ptx::for_each_initial_address(
      *code.program, code.variables.symbols,
      [&](std::string_view variable, std::size_t at, std::uint64_t value) {
        const auto& globals = module.image->globals;
        const auto global =
            std::find_if(globals.begin(), globals.end(),
                         [&](const Global& each) { return each.name == variable; });
        const auto place = module.globals.find(variable);
        if (global == globals.end() || place == module.globals.end() ||
            at + sizeof value > global->initial.size())
          return;
        // Memory of this process. NOLINTNEXTLINE(performance-no-int-to-ptr)
        auto* const to = reinterpret_cast<std::byte*>(place->second) + at;
        if (std::memcmp(to, global->initial.data() + at, sizeof value) == 0)
          std::memcpy(to, &value, sizeof value);
      });
}

tl::expected<std::shared_ptr<const ModuleCode>, std::string> make_code(
    Simulator& simulator, const Module& module) {
  const Image& image = *module.image;
  std::string text = image.ptx;
  if (text.empty()) {
    auto stored = simulator.kernel_ptx.find(image.sha256);
    if (!stored)
      return tl::unexpected(fmt::format(
          "no cache here has an object of this cubin with its PTX (SHA-256 {}): what "
          "was "
          "linked, made for link-time optimization, or compiled by others is not run; "
          "of Kiln's own kernels, let KILN_CACHE_DIR name the cache that they are in",
          image.sha256));
    text = std::move(*stored);
  }
  auto program = ptx::decode(std::move(text));
  if (!program)
    return tl::unexpected(program.error());
  auto code = std::make_shared<ModuleCode>();
  code->program = *std::move(program);
  code->variables = ptx::make_variables(
      *code->program, ptx::Symbols(module.globals.begin(), module.globals.end()));
  set_initial_addresses(module, *code);
  return code;
}

}  // namespace

tl::expected<Computation, CUresult> prepare_computation(
    Simulator& simulator, const Function& function, const Request& request,
    const kiln_simulated_launch& record) {
  Module& module = *simulator.modules.find(function.module);
  if (module.code == nullptr) {
    auto code = make_code(simulator, module);
    if (!code) {
      last_error() = fmt::format("{} is not run: {}", record.function, code.error());
      say(last_error());
      return tl::unexpected(CUDA_ERROR_NOT_SUPPORTED);
    }
    module.code = *std::move(code);
  }
  Computation computation{
      .code = module.code,
      .record = record,
      .multiprocessors = static_cast<unsigned>(
          simulator.device_of(function.context).model.multiprocessors),
      .context = function.context,
      .how = simulator.settings.computing};
  const KernelWork kept = keep(request, *function.entry);
  for (std::size_t i = 0; i < kept.values.size(); ++i) {
    const std::size_t at = function.entry->parameters[i].offset;
    computation.parameters.resize(
        std::max(computation.parameters.size(), at + kept.values[i].size()));
    std::copy(kept.values[i].begin(), kept.values[i].end(),
              computation.parameters.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return computation;
}

// Of warps: half an hour or more, for a kernel that never ends.
constexpr std::uint64_t kMostInstructions = 20'000'000'000;

void compute(const Computation& computation) {
  DeviceMemory memory(computation);
  const kiln_simulated_launch& record = computation.record;
  ptx::Launch launch{.entry = record.function,
                     .dynamic_shared_bytes = record.dynamic_shared_bytes,
                     .parameters = computation.parameters,
                     .multiprocessors = computation.multiprocessors};
  std::copy_n(record.grid, 3, launch.grid.begin());
  std::copy_n(record.block, 3, launch.block.begin());
  if (record.cluster[0] != 0)
    std::copy_n(record.cluster, 3, launch.cluster.begin());
  ptx::Schedule schedule = computation.how.schedule;
  schedule.limit = kMostInstructions;
  if (record.is_cooperative != 0)  // all of them wait for each other
    schedule.blocks_at_once = launch.grid[0] * launch.grid[1] * launch.grid[2];
  ptx::Report report;
  const auto done = ptx::launch(*computation.code->program, launch,
                                computation.code->variables.symbols, memory, schedule,
                                computation.how.checks, report);
  if (!report.printed.empty()) {
    std::fputs(report.printed.c_str(), stdout);
    std::fflush(stdout);
  }
  for (const auto& [note, count] : report.notes)
    say(fmt::format("{}: {} ({} times)", record.function, note, count));
  if (done)
    return;
  last_error() = fmt::format("{}: error {}: {}", record.function, done.error().result,
                             done.error().why);
  say(last_error());
  Process& all = process();
  const MutexLock lock(all.mutex);
  if (Context* const context = all.simulator.contexts.find(computation.context))
    context->lost = static_cast<CUresult>(done.error().result);
}

}  // namespace kiln::simulated
