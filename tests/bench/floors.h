// The least that each thing could cost: the bare system calls, hashes and compiles that
// it cannot do without, with nothing of Kiln around them.

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compile/protocol/job.h"
#include "compile/worker/nvrtc.h"
#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln::bench {

/// open, fstat, read into new memory, XXH3-128, close, of each. Errors: kIo.
[[nodiscard]] Result<void> read_and_hash(const std::vector<std::string>& paths);

/// stat of each. Errors: kIo.
[[nodiscard]] Result<void> stat_all(const std::vector<std::string>& paths);

/// open a temporary in `folder`, write, fdatasync, close, link to `name`, unlink the
/// temporary. Errors: kIo.
[[nodiscard]] Result<void> write_and_link(const std::string& folder,
                                          const std::string& name, ByteView bytes);

/// NVRTC's own calls for what a worker is asked for: the same source, options (those of
/// the log, too) and results. Errors: kCompileFailed, with the log.
[[nodiscard]] Result<void> compile_bare(const compile::Nvrtc& nvrtc,
                                        const compile::CompileJob& job);

}  // namespace kiln::bench
