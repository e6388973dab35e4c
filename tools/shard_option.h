// --shard i/n|auto: which part of the selection this machine builds.

#pragma once

#include <string>

#include "build/config.h"
#include "kiln/result.h"
#include "remote/shard.h"

namespace kiln::tools {

struct ShardChoice {
  remote::Shard shard;
  std::string from;  // "--shard", or the variables that `auto` took it from
};

/// "2/8": the third of eight. "auto": this task of a Slurm array, this node of a Slurm
/// job, or this index of a Kubernetes Job with KILN_SHARDS. Errors: kInvalidArgument,
/// naming the variable.
[[nodiscard]] Result<ShardChoice> parse_shard(const std::string& text,
                                              const Environment& environment);

}  // namespace kiln::tools
