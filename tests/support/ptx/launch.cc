// A launch: the entry's shared memory and constants are laid out, then its blocks run,
// some side by side.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "tests/support/ptx/machine.h"

namespace kiln::ptx {
namespace {

constexpr std::uint64_t kQuantum = 20000;       // instructions of a warp
constexpr std::uint64_t kPatience = 4'000'000;  // instructions, until a block ends

/// The entry and all that it may call.
void collect(const Program& program, const Function& function,
             std::set<const Function*>& into) {
  if (!into.insert(&function).second)
    return;
  for (const Function* callee : function.callees) collect(program, *callee, into);
  if (!function.calls_by_pointer)
    return;
  for (const auto& each : program.functions) {
    if (!each->is_entry)
      collect(program, *each, into);
  }
}

using Addresses = std::map<std::string_view, std::uint64_t>;

/// In the order of the program, so that the layout is the same each time.
std::vector<const Function*> functions_of(const Grid& grid) {
  std::set<const Function*> reached;
  collect(grid.program, *grid.entry, reached);
  std::vector<const Function*> functions;
  for (const auto& each : grid.program.functions) {
    if (reached.contains(each.get()))
      functions.push_back(each.get());
  }
  return functions;
}

void lay_out(Grid& grid) {
  const std::vector<const Function*> functions = functions_of(grid);
  Addresses addresses;
  std::map<std::string_view, const syntax::Variable*> placed;
  std::size_t end = 0;
  std::vector<const syntax::Variable*> dynamic;
  const auto place = [&](const syntax::Variable& variable) {
    if (variable.space != Space::kShared)
      return;
    const auto [known, is_new] = placed.emplace(variable.name, &variable);
    if (!is_new && known->second != &variable)
      throw Fault{kNotSupported,
                  fmt::format("two shared variables are named {}", variable.name)};
    if (!is_new)
      return;
    if (variable.size == 0) {
      dynamic.push_back(&variable);
      return;
    }
    end = rounded_up(end, variable.alignment);
    addresses[variable.name] = end;
    end += variable.size;
  };
  std::set<std::string_view> wanted;
  for (const Function* function : functions) {
    for (const Relocation& relocation : function->relocations)
      wanted.insert(relocation.symbol);
    for (const syntax::Variable* variable : function->shared) place(*variable);
  }
  for (const syntax::Variable& variable : grid.program.module.variables) {
    if (wanted.contains(variable.name))
      place(variable);
  }
  std::size_t alignment = 16;
  for (const auto* variable : dynamic)
    alignment = std::max(alignment, variable->alignment);
  for (const auto* variable : dynamic)
    addresses[variable->name] = rounded_up(end, alignment);
  grid.shared_bytes =
      grid.launch.dynamic_shared_bytes == 0
          ? end
          : rounded_up(end, alignment) + grid.launch.dynamic_shared_bytes;
  for (std::size_t i = 0; i < grid.program.functions.size(); ++i)
    addresses.try_emplace(grid.program.functions[i]->name, kCodeWindow + i);

  for (const Function* function : functions) {
    std::vector<std::byte>& constants = grid.constants[function];
    constants = function->constants;
    for (const Relocation& relocation : function->relocations) {
      std::uint64_t value = 0;
      if (const auto here = addresses.find(relocation.symbol);
          here != addresses.end()) {
        value = here->second;
      } else if (const auto global = grid.symbols.find(relocation.symbol);
                 global != grid.symbols.end()) {
        value = global->second;
      } else {
        throw Fault{kNotSupported,
                    fmt::format("nothing here is {}", relocation.symbol)};
      }
      for (unsigned lane = 0; lane < kLanes; ++lane)
        std::memcpy(constants.data() + relocation.at - function->register_bytes +
                        std::size_t{lane} * relocation.bytes,
                    &value, relocation.bytes);
    }
  }
}

void check_limit(const Grid& grid) {
  const std::uint64_t limit = grid.schedule.limit;
  if (limit != 0 && grid.report.instructions > limit)
    throw Fault{kLaunchTimeout,
                fmt::format("{} has run {} instructions of warps and not ended",
                            grid.entry->name, grid.report.instructions)};
}

std::vector<std::uint64_t> order_of_blocks(Grid& grid) {
  const Extent& extent = grid.launch.grid;
  const std::uint64_t all = std::uint64_t{extent[0]} * extent[1] * extent[2];
  const std::uint64_t first = std::min(grid.launch.first_block, all);
  std::vector<std::uint64_t> order(std::min(grid.launch.most_blocks, all - first));
  std::iota(order.begin(), order.end(), first);
  if (grid.schedule.seed != 0) {
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[grid.random.below(i)]);
  }
  return order;
}

Extent index_of(std::uint64_t block, const Extent& extent) {
  return {static_cast<unsigned>(block % extent[0]),
          static_cast<unsigned>(block / extent[0] % extent[1]),
          static_cast<unsigned>(block / extent[0] / extent[1])};
}

void run_blocks(Grid& grid) {
  const auto order = order_of_blocks(grid);
  std::size_t room = std::max(grid.schedule.blocks_at_once, 1U);
  std::uint64_t last_end = 0;  // when a block ended
  std::vector<std::unique_ptr<Block>> running;
  std::size_t next = 0;
  while (next < order.size() || !running.empty()) {
    while (running.size() < room && next < order.size())
      running.push_back(
          std::make_unique<Block>(grid, index_of(order[next++], grid.launch.grid)));
    bool has_run = false;
    for (const auto& block : running) has_run = block->run(kQuantum) || has_run;
    const std::size_t before = running.size();
    std::erase_if(running, [](const auto& block) {
      if (block->is_done() && !block->tracked.empty())
        block->note(
            "a block ends while copies that an mbarrier waits for are under way");
      return block->is_done();
    });
    check_limit(grid);
    // They may wait for one that has not begun.
    const std::uint64_t now = grid.report.instructions;
    if (running.size() != before) {
      last_end = now;
    } else if (now - last_end > kPatience) {
      last_end = now;
      ++room;
    }
    if (has_run || running.size() != before)
      continue;
    std::string waits;
    for (const auto& block : running)
      waits += (waits.empty() ? "" : "; ") + block->describe_waits();
    throw Fault{kLaunchTimeout, "deadlock: " + waits};
  }
}

}  // namespace

const Function* Program::find(std::string_view name) const {
  for (const auto& function : functions) {
    if (function->name == name)
      return function.get();
  }
  return nullptr;
}

std::uint64_t Program::address_of(std::string_view name) const {
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (functions[i]->name == name)
      return kCodeWindow + i;
  }
  return 0;
}

std::string GlobalMemory::describe(std::uint64_t address) const {
  return fmt::format("{:#x} is no memory of the device", address);
}

const Function* find_entry(const Program& program, std::string_view name) {
  const Function* const found = program.find(name);
  return found != nullptr && found->is_entry ? found : nullptr;
}

// What it has apart from its own struct is not the launch's.
// NOLINTNEXTLINE(readability-function-size)
tl::expected<void, LaunchError> launch(const Program& program, const Launch& launch,
                                       const Symbols& symbols, GlobalMemory& memory,
                                       const Schedule& schedule, const Checks& checks,
                                       Report& report) {
  Grid grid{.program = program,
            .launch = launch,
            .symbols = symbols,
            .memory = memory,
            .schedule = schedule,
            .checks = checks,
            .report = report,
            .entry = find_entry(program, launch.entry),
            .random = Noise(schedule.seed)};
  try {
    if (grid.entry == nullptr)
      throw Fault{kNotSupported, fmt::format("there is no entry {}", launch.entry)};
    if (launch.parameters.size() < grid.entry->parameter_bytes)
      throw Fault{kLaunchFailed,
                  fmt::format("{} has {} bytes of parameters, not {}", launch.entry,
                              grid.entry->parameter_bytes, launch.parameters.size())};
    lay_out(grid);
    run_blocks(grid);
  } catch (const Fault& fault) {
    return tl::unexpected(LaunchError{fault.result, fault.why});
  }
  return {};
}

}  // namespace kiln::ptx
