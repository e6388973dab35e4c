// Reads what ptxas -v wrote into NVRTC's log: registers, shared memory, spills.
// The forms of NVRTC 11 to 13 differ in the margin and in the order of the items.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "compile/protocol/job.h"

namespace kiln::compile {

/// One element per entry point, in log order; device functions that were not inlined
/// are left out. Unknown lines are skipped: parsing never fails.
[[nodiscard]] std::vector<ResourceUse> parse_resource_use(std::string_view log);

/// The log without the resource report: what a person should read. Empty when the
/// compiler had nothing to say.
[[nodiscard]] std::string diagnostics(std::string_view log);

/// What is kept of each end of a text that a worker sends: its reader is a person, and
/// the host keeps several copies of it.
inline constexpr std::size_t kTextEndBytes = 256U << 10U;

/// `text`, or if it is longer than twice `end_bytes` only its beginning and its end,
/// and between them a line that says how many bytes are left out.
[[nodiscard]] std::string shortened(std::string text,
                                    std::size_t end_bytes = kTextEndBytes);

/// True if the log has a fatal out-of-memory line of NVRTC or ptxas, not if a source
/// only prints such words. Both report it in the text of an ordinary compile error.
[[nodiscard]] bool says_out_of_memory(std::string_view log);

}  // namespace kiln::compile
