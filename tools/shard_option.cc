#include "tools/shard_option.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>

#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

using remote::kMostShards;

constexpr NumberRange kAny{0, std::numeric_limits<std::uint32_t>::max()};
constexpr NumberRange kCounts{1, kMostShards};

bool is_set(const Environment& environment, const std::string& variable) {
  return !environment(variable).value_or("").empty();
}

/// The number that a variable has; `otherwise` where it is not set. Errors:
/// kInvalidArgument, naming the variable.
Result<std::uint64_t> number_in(const Environment& environment,
                                const std::string& variable, NumberRange range,
                                std::optional<std::uint64_t> otherwise = {}) {
  if (is_set(environment, variable))
    return about("--shard auto: " + variable,
                 parse_number(*environment(variable), range));
  if (otherwise)
    return *otherwise;
  return refuse("--shard auto: {} is not set", variable);
}

Result<ShardChoice> choice(std::uint64_t index, std::uint64_t count, std::string from) {
  if (index >= count)
    return refuse("{}: there is no shard {} of {}: they are 0 to {}", from, index,
                  count, count - 1);
  return ShardChoice{
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(count)},
      std::move(from)};
}

Result<ShardChoice> of_slurm_array(const Environment& environment) {
  const auto number = [&](const char* name, NumberRange range,
                          std::optional<std::uint64_t> otherwise = {}) {
    return number_in(environment, std::string("SLURM_ARRAY_TASK_") + name, range,
                     otherwise);
  };
  const auto count = KILN_TRY(number("COUNT", kCounts));
  const auto least = KILN_TRY(number("MIN", kAny, 0));
  const auto step = KILN_TRY(number("STEP", {1, kAny.most}, 1));
  const auto id = KILN_TRY(number("ID", {least, kAny.most}));
  const auto most = KILN_TRY(number("MAX", kAny, least + (count - 1) * step));
  // A list such as --array=0,5: which tasks are between is not known here.
  if ((id - least) % step != 0 || most != least + (count - 1) * step)
    return refuse(
        "--shard auto: the array's {} tasks from {} to {} have gaps; give it a range, "
        "--array=0-{}",
        count, least, most, count - 1);
  return choice((id - least) / step, count,
                "--shard auto, SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT");
}

Result<ShardChoice> of_environment(const Environment& environment) {
  if (is_set(environment, "SLURM_ARRAY_TASK_ID"))
    return of_slurm_array(environment);
  for (const auto& [index, count] : {std::pair("SLURM_NODEID", "SLURM_NNODES"),
                                     {"JOB_COMPLETION_INDEX", "KILN_SHARDS"}}) {
    if (!is_set(environment, index))
      continue;
    const auto shards = KILN_TRY(number_in(environment, count, kCounts));
    return choice(KILN_TRY(number_in(environment, index, kAny)), shards,
                  fmt::format("--shard auto, {} and {}", index, count));
  }
  return refuse(
      "--shard auto: this is no task of a Slurm array (SLURM_ARRAY_TASK_ID), no node "
      "of a Slurm job (SLURM_NODEID) and no index of a Kubernetes Job "
      "(JOB_COMPLETION_INDEX, with KILN_SHARDS)");
}

}  // namespace

Result<ShardChoice> parse_shard(const std::string& text,
                                const Environment& environment) {
  if (text == "auto")
    return of_environment(environment);
  const std::size_t slash = text.find('/');
  const auto index = parse_number(text.substr(0, slash), kAny);
  const auto count =
      parse_number(slash == std::string::npos ? "" : text.substr(slash + 1), kCounts);
  if (!index || !count)
    return refuse(
        "--shard: '{}' is neither auto nor i/n, such as 0/4: the first of four; n is "
        "at most {}",
        text, kMostShards);
  return choice(*index, *count, fmt::format("--shard {}", text));
}

}  // namespace kiln::tools
