// What a worker does that is started to see whether a mount answers.

#pragma once

namespace kiln::compile {

/// Makes the calls that a dead mount would hold, whatever they give.
void probe_mount(const char* mount, const char* place);

}  // namespace kiln::compile
