// Reads what ptxas -v wrote into NVRTC's log: registers, shared memory, spills.
// The forms of NVRTC 11 to 13 differ in the margin and in the order of the items.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compile/protocol/job.h"

namespace kiln::compile {

/// One entry an entry point, in the order of the log; device functions that were not
/// inlined are left out. Unknown lines are skipped: a log is never an error.
[[nodiscard]] std::vector<ResourceUse> parse_resource_use(std::string_view log);

/// The log without the resource report: what a person should read. Empty when the
/// compiler had nothing to say.
[[nodiscard]] std::string diagnostics(std::string_view log);

/// NVRTC and ptxas say "out of memory" in the text of an ordinary compile error. True
/// only for their own fatal lines, not for a source that prints such words.
[[nodiscard]] bool says_out_of_memory(std::string_view log);

}  // namespace kiln::compile
