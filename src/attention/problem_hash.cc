#include "attention/problem_hash.h"

#include <cstdint>
#include <functional>

namespace kiln::attention {

std::size_t ProblemHash::operator()(const Problem& problem) const noexcept {
  const Problem& p = problem;
  std::size_t hash = 0;
  for (const std::int64_t each :
       {p.batch, p.heads, p.kv_heads, p.sq, p.skv, p.dqk, p.dv, p.q.sequence,
        p.k.sequence, static_cast<std::int64_t>(p.pass),
        static_cast<std::int64_t>(p.mask)}) {
    constexpr std::size_t kGolden = 0x9e3779b97f4a7c15ULL;  // 2^64 / the golden ratio
    hash ^= std::hash<std::int64_t>()(each) + kGolden + (hash << 6U) + (hash >> 2U);
  }
  return hash;
}

}  // namespace kiln::attention
