#include "tools/why_answer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "tools/output/entries.h"
#include "tools/verbs.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using nlohmann::ordered_json;

/// The entries to compare with: those of the same kernel, or of any kernel if there are
/// none.
Result<std::vector<cache::Entry>> candidates(cache::Cache& cache,
                                             const std::string& kernel) {
  constexpr std::size_t kMostCandidates = 2000;
  cache::ListQuery query;
  query.templates = {kernel};
  query.limit = kMostCandidates;
  auto entries = KILN_TRY(cache.list(query));
  if (entries.empty()) {
    query.templates.clear();
    entries = KILN_TRY(cache.list(query));
  }
  return entries;
}

void print_lines(const WhyAnswer& answer, const Terminal& out) {
  const bool is_request = !answer.toolchain_note.empty();
  if (is_request)
    print(fmt::format("request {}\ntoolchain {}\n", answer.key.hex(),
                      answer.toolchain_note));
  if (answer.same) {
    print(is_request ? "a hit: the cache holds exactly this\n"
                     : "the same key: nothing differs\n");
    return;
  }
  if (!answer.nearest) {
    print("a miss: the cache holds no entry to compare with\n");
    return;
  }
  if (is_request)
    print(fmt::format("a miss; the nearest entry is {}\n", answer.nearest->hex()));
  std::vector<std::vector<std::string>> rows;
  for (const key::FieldDifference& difference : answer.differences)
    rows.push_back({difference.field, difference.a, difference.b});
  print(format_table({{"FIELD"},
                      {is_request ? "REQUEST" : answer.key.hex().substr(0, 12)},
                      {is_request ? "NEAREST" : answer.nearest->hex().substr(0, 12)}},
                     rows, out));
}

}  // namespace

Result<Fields> preimage_of(cache::Cache& cache, const Digest& key) {
  const auto object = KILN_TRY(cache.inspect(key));
  if (!object)
    return fail(ErrorCode::kNotFound, key.hex() + " has just been removed");
  return object->preimage();
}

Result<WhyAnswer> explain_miss(cache::Cache& cache, const Digest& key,
                               const Fields& preimage, const std::string& name,
                               std::string toolchain_note) {
  WhyAnswer answer{.key = key,
                   .nearest = {},
                   .differences = {},
                   .toolchain_note = std::move(toolchain_note)};
  if (const auto there = cache.inspect(key); there && *there) {
    answer.same = true;
    answer.nearest = key;
    return answer;
  }
  std::vector<Fields> preimages;
  std::vector<Digest> keys;
  for (const cache::Entry& entry : KILN_TRY(candidates(cache, name))) {
    // Skip an entry that was removed or is damaged.
    if (auto found = preimage_of(cache, entry.key)) {
      preimages.push_back(*std::move(found));
      keys.push_back(entry.key);
    }
  }
  if (auto nearest = key::nearest_preimage(preimage, preimages)) {
    answer.nearest = keys[nearest->index];
    answer.differences = std::move(nearest->differences);
  }
  return answer;
}

void print_answer(const WhyAnswer& answer, bool as_json, const Terminal& out) {
  if (!as_json)
    return print_lines(answer, out);
  ordered_json json = {{"same", answer.same},
                       {"key", answer.key.hex()},
                       {"nearest", answer.nearest ? ordered_json(answer.nearest->hex())
                                                  : ordered_json(nullptr)},
                       {"differences", differences_json(answer.differences)}};
  if (!answer.toolchain_note.empty())
    json["toolchain"] = answer.toolchain_note;
  print_json(json);
}

}  // namespace kiln::tools
