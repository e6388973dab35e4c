#include "tests/support/cpu_kernel/warp.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tests/support/cpu_kernel/matrices.h"
#include "util/try.h"

namespace kiln_cpu {
namespace {

constexpr unsigned kWholeWarp = 0xffffffffU;

constexpr unsigned bit(int lane) {
  return 1U << lane;
}

/// Calls `visit` with each lane of `mask` in ascending order.
template <typename Function>
void for_each_lane(unsigned mask, Function function) {
  for (; mask != 0; mask &= mask - 1) {
    function(std::countr_zero(mask));
  }
}

bool is_shuffle(Collective what) {
  return what == Collective::kShuffle || what == Collective::kShuffleXor ||
         what == Collective::kShuffleUp || what == Collective::kShuffleDown;
}

/// Two values of a reduction as one.
unsigned reduced(Collective how, unsigned a, unsigned b) {
  switch (how) {
    case Collective::kReduceAdd:
      return a + b;
    case Collective::kReduceMin:
      return std::min(a, b);
    case Collective::kReduceMax:
      return std::max(a, b);
    case Collective::kReduceAnd:
      return a & b;
    case Collective::kReduceOr:
      return a | b;
    default:
      return a ^ b;
  }
}

/// The lane that `lane` reads, which need not exist.
int source_of(int lane, const Visit& visit) {
  switch (visit.what) {
    case Collective::kShuffleXor:
      return lane ^ visit.argument;
    case Collective::kShuffleUp:
      return lane - visit.argument < 0 ? lane : lane - visit.argument;
    case Collective::kShuffleDown:
      return lane + visit.argument >= kWarpLanes ? lane : lane + visit.argument;
    default:
      return visit.argument;
  }
}

}  // namespace

std::string_view to_string(Collective collective) {
  constexpr std::array<std::string_view, 21> kNames{"sync_warp",
                                                    "shuffle",
                                                    "shuffle_xor",
                                                    "shuffle_up",
                                                    "shuffle_down",
                                                    "ballot",
                                                    "any",
                                                    "all",
                                                    "match_any",
                                                    "reduce_add",
                                                    "reduce_min",
                                                    "reduce_max",
                                                    "reduce_and",
                                                    "reduce_or",
                                                    "reduce_xor",
                                                    "matrix_load",
                                                    "matrix_load_transposed",
                                                    "multiply_k8 of f16",
                                                    "multiply_k8 of bf16",
                                                    "multiply_k16 of f16",
                                                    "multiply_k16 of bf16"};
  return kNames[static_cast<std::size_t>(collective)];
}

std::string to_string(const Visit& visit) {
  return fmt::format("{} with mask {:#010x}", to_string(visit.what), visit.mask);
}

kiln::Result<unsigned> Warp::join(int lane, const Visit& visit) {
  const auto wrong = [&](const std::string& why) {
    return kiln::fail(kiln::ErrorCode::kInvalidArgument, to_string(visit) + ": " + why);
  };
  if ((visit.mask & bit(lane)) == 0) {
    return wrong(fmt::format("lane {} is not in its own mask", lane));
  }
  std::string conflict;
  for_each_lane(waiting_, [&](int other) {
    const Visit& its = visits_[index(other)];
    const bool meant = ((its.mask & bit(lane)) | (visit.mask & bit(other))) != 0;
    if (meant && (its.mask != visit.mask || its.what != visit.what)) {
      conflict = fmt::format("lane {} waits at {}", other, to_string(its));
    }
  });
  if (!conflict.empty()) {
    return wrong(conflict);
  }
  visits_[index(lane)] = visit;
  waiting_ |= bit(lane);
  if ((waiting_ & visit.mask) != visit.mask) {
    return 0U;
  }
  KILN_TRY(complete(visit.mask));
  waiting_ &= ~visit.mask;
  return visit.mask;
}

kiln::Result<void> Warp::complete(unsigned mask) {
  const Visit& any = visits_[index(std::countr_zero(mask))];
  if (is_of_matrices(any.what)) {
    if (mask != kWholeWarp) {
      return kiln::fail(kiln::ErrorCode::kInvalidArgument,
                        to_string(any) + ": the whole warp takes part");
    }
    std::array<void*, kWarpLanes> operands{};
    std::transform(visits_.begin(), visits_.end(), operands.begin(),
                   [](const Visit& visit) { return visit.operands; });
    complete_matrices(any.what, operands);
    return {};
  }
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    if ((mask & bit(lane)) != 0) {
      results_[index(lane)] = is_shuffle(visits_[index(lane)].what)
                                  ? KILN_TRY(shuffled(lane))
                                  : combined(lane);
    }
  }
  return {};
}

kiln::Result<unsigned> Warp::shuffled(int lane) const {
  const Visit& visit = visits_[index(lane)];
  const int source = source_of(lane, visit);
  if (source < 0 || source >= kWarpLanes || (visit.mask & bit(source)) == 0) {
    return kiln::fail(kiln::ErrorCode::kInvalidArgument,
                      fmt::format("{}: lane {} reads lane {}, which is not in the mask",
                                  to_string(visit), lane, source));
  }
  return visits_[index(source)].value;
}

unsigned Warp::combined(int lane) const {
  const Visit& visit = visits_[index(lane)];
  unsigned set = 0;    // whose value is not 0
  unsigned equal = 0;  // whose value is this lane's
  for_each_lane(visit.mask, [&](int other) {
    const unsigned value = visits_[index(other)].value;
    set |= value != 0 ? bit(other) : 0U;
    equal |= value == visit.value ? bit(other) : 0U;
  });
  switch (visit.what) {
    case Collective::kSync:
      return 0;
    case Collective::kBallot:
      return set;
    case Collective::kAny:
      return set != 0 ? 1 : 0;
    case Collective::kAll:
      return set == visit.mask ? 1 : 0;
    case Collective::kMatchAny:
      return equal;
    default:
      break;
  }
  const int first = std::countr_zero(visit.mask);
  unsigned total = visits_[index(first)].value;
  for_each_lane(visit.mask & ~bit(first), [&](int other) {
    total = reduced(visit.what, total, visits_[index(other)].value);
  });
  return total;
}

}  // namespace kiln_cpu
