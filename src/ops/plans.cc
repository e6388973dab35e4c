#include "ops/plans.h"

#include "ops/check.h"

namespace kiln::ops {

#define KILN_PLAN(function, Args)                                                    \
  Result<Launches> plan(const Args& args, const Device& device, Pointers pointers) { \
    return named(#function, make_plan(args, device, pointers));                      \
  }
KILN_EACH_OPERATION(KILN_PLAN)

#define KILN_WORKSPACE(function, Args)                                   \
  Result<std::uint64_t> function##_workspace_bytes(const Device& device, \
                                                   const Args& args) {   \
    return named(#function, workspace_bytes(device, args));              \
  }
KILN_EACH_WORKSPACE(KILN_WORKSPACE)

}  // namespace kiln::ops
