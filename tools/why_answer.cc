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

ordered_json answer_json(const WhyAnswer& answer) {
  ordered_json json = {{"same", answer.same},
                       {"key", answer.key.hex()},
                       {"nearest", answer.nearest ? ordered_json(answer.nearest->hex())
                                                  : ordered_json(nullptr)},
                       {"differences", differences_json(answer.differences)}};
  if (!answer.toolchain_note.empty()) {
    json["toolchain"] = answer.toolchain_note;
    json["tier"] = answer.same ? ordered_json(to_string(answer.tier)) : nullptr;
  }
  return json;
}

/// "parameter/dtype: f16, there bf16; and 2 more"
std::string difference_text(const WhyAnswer& answer) {
  if (answer.differences.empty())
    return "";
  const key::FieldDifference& first = answer.differences.front();
  std::string text = fmt::format("{}: {}, there {}", first.field, first.a, first.b);
  if (answer.differences.size() > 1)
    text += fmt::format("; and {} more", answer.differences.size() - 1);
  return text;
}

void print_lines(const WhyAnswer& answer, const Terminal& out) {
  const bool is_request = !answer.toolchain_note.empty();
  if (is_request)
    print(out.fitted(fmt::format("request {}\ntoolchain {}\n", answer.key.hex(),
                                 answer.toolchain_note)));
  if (answer.same) {
    print(!is_request ? "the same key: nothing differs\n"
          : answer.tier == cache::Tier::kSeed
              ? "a hit: a seed holds exactly this\n"
              : "a hit: the cache holds exactly this\n");
    return;
  }
  if (!answer.nearest) {
    print("a miss: the cache holds no entry to compare with\n");
    return;
  }
  if (is_request)
    print(out.fitted(
        fmt::format("a miss; the nearest entry is {}\n", answer.nearest->hex())));
  std::vector<std::vector<std::string>> rows;
  for (const key::FieldDifference& difference : answer.differences)
    rows.push_back({difference.field, difference.a, difference.b});
  const std::string first =
      is_request ? "REQUEST" : answer.key.hex().substr(0, kShortKeyDigits);
  const std::string second =
      is_request ? "NEAREST" : answer.nearest->hex().substr(0, kShortKeyDigits);
  print(format_table({{"FIELD"},
                      {.title = first, .may_wrap = true},
                      {.title = second, .may_wrap = true}},
                     rows, out));
}

}  // namespace

Result<Fields> preimage_of(cache::Cache& cache, const Digest& key) {
  const auto object = KILN_TRY(cache.inspect(key));
  if (!object)
    return fail(ErrorCode::kNotFound, key.hex() + " has just been removed");
  return object->preimage();
}

/// The entries to compare with: those of the same kernel, or of any kernel if there are
/// none.
Result<const MissExplainer::Candidates*> MissExplainer::candidates(
    const std::string& kernel) {
  const auto [at, is_new] = read_.try_emplace(kernel);
  Candidates& found = at->second;
  if (!is_new)
    return &found;
  constexpr std::size_t kMostCandidates = 2000;
  cache::ListQuery query;
  query.templates = {kernel};
  query.limit = kMostCandidates;
  auto entries = KILN_TRY(cache_.list(query));
  if (entries.empty()) {
    query.templates.clear();
    entries = KILN_TRY(cache_.list(query));
  }
  for (const cache::Entry& entry : entries) {
    // Skip an entry that was removed or is damaged.
    if (auto preimage = preimage_of(cache_, entry.key)) {
      found.preimages.push_back(*std::move(preimage));
      found.keys.push_back(entry.key);
    }
  }
  return &found;
}

Result<WhyAnswer> MissExplainer::explain(const Digest& key, const Fields& preimage,
                                         const std::string& name,
                                         std::string toolchain_note) {
  WhyAnswer answer{.key = key,
                   .nearest = {},
                   .differences = {},
                   .toolchain_note = std::move(toolchain_note)};
  if (const auto there = cache_.inspect(key, &answer.tier); there && *there) {
    answer.same = true;
    answer.nearest = key;
    return answer;
  }
  const Candidates& found = *KILN_TRY(candidates(name));
  if (auto nearest = key::nearest_preimage(preimage, found.preimages)) {
    answer.nearest = found.keys[nearest->index];
    answer.differences = std::move(nearest->differences);
  }
  return answer;
}

void print_answer(const WhyAnswer& answer, bool as_json, const Terminal& out) {
  if (as_json)
    print_json(answer_json(answer));
  else
    print_lines(answer, out);
}

void print_answers(std::string_view text, std::span<const WhyAnswer> answers,
                   std::size_t shown, bool as_json, const Terminal& out) {
  if (as_json) {
    ordered_json json = answer_json(answers[shown]);
    json["requests"] = ordered_json::array();
    for (const WhyAnswer& answer : answers) {
      ordered_json each = answer_json(answer);
      each["template"] = answer.label;
      json["requests"].push_back(std::move(each));
    }
    return print_json(json);
  }
  std::vector<std::vector<std::string>> rows;
  for (const WhyAnswer& answer : answers) {
    if (!answer.same)
      rows.push_back(
          {answer.label,
           answer.nearest ? answer.nearest->hex().substr(0, kShortKeyDigits) : "none",
           difference_text(answer)});
  }
  print(out.fitted(fmt::format(
      "toolchain {}\n{} is {} kernels, as `kiln warm` builds them: {} in "
      "the cache, {}\n",
      answers[shown].toolchain_note, text, answers.size(), answers.size() - rows.size(),
      counted(rows.size(), "miss", "misses"))));
  if (!rows.empty())
    print(format_table({{.title = "MISS", .cut = Cut::kEnd},
                        {.title = "NEAREST", .leave_out = 1},
                        {.title = "DIFFERS", .may_wrap = true}},
                       rows, out));
}

}  // namespace kiln::tools
