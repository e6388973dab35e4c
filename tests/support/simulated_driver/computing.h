// Launches that compute: the PTX interpreter behind the driver.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tests/support/ptx/interpreter.h"
#include "tests/support/ptx/variables.h"
#include "tests/support/simulated_driver/launches.h"
#include "tests/support/simulated_driver/simulated_driver.h"

namespace kiln::simulated {

struct Function;
struct Image;
struct Module;

/// How kernels run, and what is looked for meanwhile.
struct Computing {
  bool is_on = true;
  bool is_host_memory_seen = false;  // as a device with unified memory does
  ptx::Schedule schedule{};
  ptx::Checks checks{};
};

/// "run" or "record"; "unset,races"; "device" or "process"; a number: the values of
/// KILN_SIMULATED_KERNELS, _CHECKS, _MEMORY and _SEED. False for what cannot be read.
[[nodiscard]] bool set_computing(Computing& computing, std::string_view name,
                                 std::string_view value);

/// A module's code, with the memory of the variables that its image does not tell.
struct ModuleCode {
  std::shared_ptr<const ptx::Program> program{};
  ptx::Variables variables{};
};

/// A launch that will be computed.
struct Computation {
  std::shared_ptr<const ModuleCode> code{};
  kiln_simulated_launch record{};
  std::vector<std::byte> parameters{};
  unsigned multiprocessors = 1;
  CUcontext context = nullptr;
  Computing how{};
};

/// Under the lock. Errors: CUDA_ERROR_NOT_SUPPORTED, after a line on stderr: there is
/// no PTX of the image, or PTX that is not run here.
[[nodiscard]] tl::expected<Computation, CUresult> prepare_computation(
    Simulator& simulator, const Function& function, const Request& request,
    const kiln_simulated_launch& record);

/// Outside the lock, to its end. What a kernel did wrong is the end of its context, as
/// on a device, and is said on stderr and in kiln_simulated_take_report().
void compute(const Computation& computation);

/// On stderr, and in what take_report() gives.
void say(const std::string& line);

/// Of the calling thread's last launch that failed.
[[nodiscard]] std::string& last_error();

/// What launches of this process did wrong and what was noticed, a line each, since the
/// last call.
[[nodiscard]] std::string take_report();

}  // namespace kiln::simulated
