// The plans of all operations but attention (ops/attention.h): what each checks and
// launches. The headers under kiln/ops/ say what they compute.

#pragma once

#include <cstdint>

#include "kiln/device.h"
#include "kiln/result.h"
#include "ops/operation_table.h"
#include "ops/plan.h"

namespace kiln::ops {

// Each returns the launches on `device`. Errors: kInvalidArgument, also if there is a
// workspace and it is too small; none is needed if pointers are ignored. The launches
// of rope depend on whether the pointers of the table, of starts and of cu_seqlens are
// null, even if pointers are ignored. None depends on the alignment of a pointer: such
// a call would be planned each time (known_calls.h).
#define KILN_PLAN(function, Args)                                             \
  [[nodiscard]] Result<Launches> plan(const Args& args, const Device& device, \
                                      Pointers pointers = Pointers::kIgnored);
KILN_EACH_OPERATION(KILN_PLAN)
#undef KILN_PLAN

// Each family has these. Their errors do not name the operation.
#define KILN_FAMILY(function, Args)                                                \
  [[nodiscard]] Result<Launches> make_plan(const Args& args, const Device& device, \
                                           Pointers pointers);
KILN_EACH_OPERATION(KILN_FAMILY)
#undef KILN_FAMILY
#define KILN_FAMILY(function, Args)                                         \
  [[nodiscard]] Result<std::uint64_t> workspace_bytes(const Device& device, \
                                                      const Args& args);
KILN_EACH_WORKSPACE(KILN_FAMILY)
#undef KILN_FAMILY

}  // namespace kiln::ops
