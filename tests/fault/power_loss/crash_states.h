// The states in which a power loss can leave a disk, from the log of what was done.
//
// The model, after ALICE (Pillai et al., "All File Systems Are Not Created Equal", OSDI
// 2014) and CrashMonkey (Mohan et al., OSDI 2018). The power goes after each prefix of
// the log. Of the prefix is on the disk what was synced, and of the rest:
//
// - Names (create, link, rename, unlink, mkdir): any subset, so that each may be lost,
//   or overtake another one. Only a sync of its folder makes a name durable; a sync of
//   the file does not. A rename may have reached one of its two folders alone (ext2).
//   What is in a folder that was lost is lost with it.
// - Data: none of it, all of it, or a part, whether its name is there or not, as ext4
//   with data=writeback and XFS allow: up to each sector of 512 bytes (in a file of
//   over 16 KiB each page of 4096) or into the midst of one; with the new size, and
//   zeros, garbage, or what another file left on the disk from there on; with the later
//   sectors there and the earlier ones not; any sectors at random.
// - Mode and modification time: each change there or not; fdatasync promises neither.
//
// This is weaker than any one file system: what survives here survives on all of them.
// Each undecided thing has a row of outcomes, and a state is one outcome of each. All
// subsets of names are visited while there are few, all outcomes of each file's data
// with all names there, and both together at random, from a fixed seed.

#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <vector>

#include "tests/fault/power_loss/disk.h"
#include "tests/fault/power_loss/operation.h"

namespace kiln::test {

struct CrashState {
  Disk disk;
  std::size_t operations = 0;  // of the log, done before the power went
  std::set<int> acknowledged;  // objects whose callers were told "stored" by then
};

/// Visits each state once: no two are the same disk with the same acknowledged objects.
/// `combinations` bounds, for each prefix, the subsets of names, the outcomes of one
/// file, and what is drawn at random. Returns the number of states.
std::size_t for_each_crash_state(const Disk& before, const Log& log,
                                 std::size_t combinations,
                                 const std::function<void(const CrashState&)>& visit);

/// What can become of a file's bytes between `before` and `after`, both included.
[[nodiscard]] std::vector<Bytes> torn_contents(const Bytes& before, const Bytes& after,
                                               const Bytes& stale);

}  // namespace kiln::test
