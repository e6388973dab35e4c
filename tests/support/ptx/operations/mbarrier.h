#pragma once

#include "tests/support/ptx/decoder.h"
#include "tests/support/ptx/machine.h"

namespace kiln::ptx {

/// The arrival that follows those copies. Throws Fault.
void arrive_for(Block& block, const Tracked& tracked);
/// cp.async.mbarrier.arrive
void select_arrival_after_copies(Decoder& decoder);

}  // namespace kiln::ptx
