// What a capture allows and what ends it.

#pragma once

#include "tests/support/simulated_driver/simulator.h"

namespace kiln::simulated {

/// May work be put on this stream now: not where its capture is over, nor on the legacy
/// stream while a blocking stream of its context is captured, which ends that capture.
CUresult admit_work(Simulator& simulator, const Stream& stream);

/// A stream, or none for the calls that wait.
struct Order {
  bool is_on_stream = false;
  CUstream stream = nullptr;
};

/// The same for either kind of call. CUDA_ERROR_INVALID_HANDLE for no stream.
CUresult admit(Simulator& simulator, const Order& order);

/// And for one that allocates or frees, which no graph here can do.
CUresult admit_allocation(Simulator& simulator, const Order& order);

/// The next node of the graph that `stream` is captured into.
void add_captured(Simulator& simulator, Stream& stream, Work work);

/// Makes the stream's next node wait for these, too, in their capture.
void follow(Stream& stream, const Front& before);

/// Ends it in all of its streams. Null where it was not a good one: its graph is gone.
CUgraph end_capture(Simulator& simulator, std::shared_ptr<Capture> capture);

void record_now(Event& event);

/// Calls visit(Stream&) for every stream that there is.
template <typename Visitor>
void for_each_stream(Simulator& simulator, const Visitor& visit) {
  simulator.streams.for_each([&](CUstream, Stream& stream) { visit(stream); });
  for (auto& [context, stream] : simulator.legacy_streams) visit(stream);
  for (auto& [owner, stream] : simulator.thread_streams) visit(stream);
}

}  // namespace kiln::simulated
