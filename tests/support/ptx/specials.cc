// Special registers (PTX ISA, "Special Registers"), but for clocks, which are read anew
// each time (operands.cc).

#include <algorithm>
#include <map>

#include "tests/support/ptx/machine.h"

namespace kiln::ptx {
namespace {

const Launch& launch_of(const Place& at) {
  return at.block.grid.launch;
}

std::map<std::string, Special, std::less<>> all_specials() {
  std::map<std::string, Special, std::less<>> all{
      {"%laneid", [](const Place& at) { return at.lane; }},
      {"%warpid", [](const Place& at) { return at.warp.index(); }},
      {"%nwarpid",
       [](const Place& at) { return (at.block.threads() + kLanes - 1) / kLanes; }},
      {"%smid",
       [](const Place& at) {
         const Extent block = at.block.index();
         return (block[0] + std::uint64_t{launch_of(at).grid[0]} * block[1]) %
                std::max(launch_of(at).multiprocessors, 1U);
       }},
      {"%nsmid", [](const Place& at) { return launch_of(at).multiprocessors; }},
      {"%gridid", [](const Place&) { return 0; }},
      {"%lanemask_eq", [](const Place& at) { return 1U << at.lane; }},
      {"%lanemask_le", [](const Place& at) { return (2U << at.lane) - 1; }},
      {"%lanemask_lt", [](const Place& at) { return (1U << at.lane) - 1; }},
      {"%lanemask_ge", [](const Place& at) { return ~((1U << at.lane) - 1); }},
      {"%lanemask_gt", [](const Place& at) { return ~((2U << at.lane) - 1); }},
      {"%cluster_ctarank",
       [](const Place& at) {
         const Extent block = at.block.index();
         const Extent& cluster = launch_of(at).cluster;
         return block[0] % cluster[0] +
                std::uint64_t{cluster[0]} *
                    (block[1] % cluster[1] +
                     std::uint64_t{cluster[1]} * (block[2] % cluster[2]));
       }},
      {"%cluster_nctarank",
       [](const Place& at) {
         const Extent& cluster = launch_of(at).cluster;
         return std::uint64_t{cluster[0]} * cluster[1] * cluster[2];
       }},
      {"%dynamic_smem_size",
       [](const Place& at) { return launch_of(at).dynamic_shared_bytes; }},
      {"%total_smem_size", [](const Place& at) { return at.block.grid.shared_bytes; }},
  };
  const auto add_axes = [&](const std::string& name, Extent (*of)(const Place&)) {
    for (std::size_t axis = 0; axis < 3; ++axis)
      all[name + '.' + "xyz"[axis]] = [=](const Place& at) { return of(at)[axis]; };
  };
  add_axes("%tid", [](const Place& at) {
    return at.block.thread(at.warp.first_thread() + at.lane);
  });
  add_axes("%ntid", [](const Place& at) { return launch_of(at).block; });
  add_axes("%ctaid", [](const Place& at) { return at.block.index(); });
  add_axes("%nctaid", [](const Place& at) { return launch_of(at).grid; });
  add_axes("%cluster_ctaid", [](const Place& at) {
    Extent block = at.block.index();
    for (std::size_t i = 0; i < 3; ++i) block[i] %= launch_of(at).cluster[i];
    return block;
  });
  add_axes("%cluster_nctaid", [](const Place& at) { return launch_of(at).cluster; });
  return all;
}

}  // namespace

Special special_named(std::string_view name) {
  static const auto* const all = new auto(all_specials());
  const auto found = all->find(name);
  return found == all->end() ? nullptr : found->second;
}

}  // namespace kiln::ptx
