// kiln-bench-costs: keys, objects, builds, publishes, lists and answers on attention.

#include "tests/bench/rows.h"

namespace kiln::bench {

std::vector<Row> all_rows(const Settings& settings) {
  std::vector<Row> rows;
  for (auto& some :
       {key_rows(settings), hit_rows(settings), build_rows(settings),
        precompiled_rows(settings), remote_rows(settings), publish_rows(settings),
        transfer_rows(settings), list_rows(settings), attention_rows(settings),
        interpreter_rows(settings)})
    rows.insert(rows.end(), some.begin(), some.end());
#ifdef KILN_BENCH_PLANS  // else there is no plan worker
  const std::vector<Row> plans = plan_rows(settings);
  rows.insert(rows.end(), plans.begin(), plans.end());
#endif
  return rows;
}

}  // namespace kiln::bench
