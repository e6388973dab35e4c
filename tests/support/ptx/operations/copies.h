// Copies under way that an mbarrier waits for (PTX ISA, "cp.async.mbarrier.arrive").

#pragma once

#include <functional>

#include "tests/support/ptx/machine.h"

namespace kiln::ptx {

/// The lane's copies under way are the mbarrier's from now on.
void track(const Lanes& lanes, unsigned lane, std::byte* barrier);
/// Those copies land, and each lane's arrival follows.
void settle(Block& block, const std::function<bool(const Tracked&)>& is_due);

}  // namespace kiln::ptx
