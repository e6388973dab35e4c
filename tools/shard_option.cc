#include "tools/shard_option.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

using remote::kMostShards;

constexpr NumberRange kAny{0, std::numeric_limits<std::uint32_t>::max()};
constexpr NumberRange kCounts{1, kMostShards};

/// Reads numbers from variables; an error names the variable.
class Numbers {
 public:
  explicit Numbers(const Environment& environment) : environment_(environment) {}

  [[nodiscard]] bool has(const std::string& variable) const {
    return !environment_(variable).value_or("").empty();
  }

  [[nodiscard]] Result<std::uint64_t> get(const std::string& variable,
                                          NumberRange range) const {
    const auto text = environment_(variable).value_or("");
    if (text.empty())
      return refuse("--shard auto: {} is not set", variable);
    auto number = parse_number(text, range);
    if (!number)
      return refuse("--shard auto: {}: {}", variable, number.error().message);
    return number;
  }

  [[nodiscard]] Result<std::uint64_t> get_or(const std::string& variable,
                                             std::uint64_t otherwise,
                                             NumberRange range) const {
    return has(variable) ? get(variable, range) : otherwise;
  }

 private:
  const Environment& environment_;
};

Result<ShardChoice> choice(std::uint64_t index, std::uint64_t count, std::string from) {
  if (index >= count)
    return refuse("{}: there is no shard {} of {}: they are 0 to {}", from, index,
                  count, count - 1);
  return ShardChoice{
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(count)},
      std::move(from)};
}

Result<ShardChoice> of_slurm_array(const Numbers& numbers) {
  const auto count = KILN_TRY(numbers.get("SLURM_ARRAY_TASK_COUNT", kCounts));
  const auto least = KILN_TRY(numbers.get_or("SLURM_ARRAY_TASK_MIN", 0, kAny));
  const auto step =
      KILN_TRY(numbers.get_or("SLURM_ARRAY_TASK_STEP", 1, {1, kAny.most}));
  const auto id = KILN_TRY(numbers.get("SLURM_ARRAY_TASK_ID", {least, kAny.most}));
  const auto most = KILN_TRY(
      numbers.get_or("SLURM_ARRAY_TASK_MAX", least + (count - 1) * step, kAny));
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
  const Numbers numbers(environment);
  if (numbers.has("SLURM_ARRAY_TASK_ID"))
    return of_slurm_array(numbers);
  if (numbers.has("SLURM_NODEID")) {
    const auto count = KILN_TRY(numbers.get("SLURM_NNODES", kCounts));
    return choice(KILN_TRY(numbers.get("SLURM_NODEID", kAny)), count,
                  "--shard auto, SLURM_NODEID and SLURM_NNODES");
  }
  if (numbers.has("JOB_COMPLETION_INDEX")) {
    const auto count = KILN_TRY(numbers.get("KILN_SHARDS", kCounts));
    return choice(KILN_TRY(numbers.get("JOB_COMPLETION_INDEX", kAny)), count,
                  "--shard auto, JOB_COMPLETION_INDEX and KILN_SHARDS");
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
