// In the place of interpreted.cc where a sanitizer would make the interpreter slow to
// build, and no test computes: preset asan and tsan of the submission tier.

#include "tests/support/simulated_driver/simulator.h"

namespace kiln::simulated {

tl::expected<Computation, CUresult> prepare_computation(
    Simulator& /*simulator*/, const Function& /*function*/, const Request& /*request*/,
    const kiln_simulated_launch& record) {
  last_error() =
      std::string(record.function) + " is not run: this build has no interpreter";
  return tl::unexpected(CUDA_ERROR_NOT_SUPPORTED);
}

void compute(const Computation& /*computation*/) {}

}  // namespace kiln::simulated
