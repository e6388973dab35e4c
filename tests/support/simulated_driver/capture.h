// What a capture allows and what ends it.

#pragma once

#include "tests/support/simulated_driver/simulator.h"

namespace kiln::simulated {

/// May work be put on this stream now: not where its capture is over, nor on the legacy
/// stream while a blocking stream of its context is captured, which ends that capture.
CUresult admit_work(Simulator& simulator, const Stream& stream);

/// Does a copy or a fill, of memory that was checked.
void perform(const MemoryWork& work);

/// Calls visit(Stream&) for every stream that there is.
template <typename Visitor>
void for_each_stream(Simulator& simulator, const Visitor& visit) {
  simulator.streams.for_each([&](CUstream, Stream& stream) { visit(stream); });
  for (auto& [context, stream] : simulator.legacy_streams) visit(stream);
  for (auto& [owner, stream] : simulator.thread_streams) visit(stream);
}

}  // namespace kiln::simulated
