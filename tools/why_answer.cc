#include "tools/why_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/output/entries.h"
#include "util/try.h"
#include "util/units.h"

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
  if (!answer.entries.empty()) {
    json["entries"] = ordered_json::array();
    for (const cache::Entry& entry : answer.entries)
      json["entries"].push_back(entry_json(entry));
  }
  return json;
}

/// What two builds came to, where that differs.
void add_results(const WhyAnswer& answer, std::vector<std::vector<std::string>>& rows) {
  if (answer.entries.size() != 2)
    return;
  const auto add = [&](std::string_view name, const auto& text_of) {
    const std::string a = text_of(answer.entries[0]);
    const std::string b = text_of(answer.entries[1]);
    if (a != b)
      rows.push_back({std::string(name), a, b});
  };
  using Entry = cache::Entry;
  add("(registers)", [](const Entry& each) { return std::to_string(each.registers); });
  add("(bytes shared)",
      [](const Entry& each) { return std::to_string(each.shared_bytes); });
  add("(bytes spilled)",
      [](const Entry& each) { return std::to_string(each.spill_bytes); });
  add("(size)", [](const Entry& each) { return format_size(each.size_bytes); });
  add("(built in)", [](const Entry& each) {
    return format_duration(std::chrono::milliseconds(each.compile_ms));
  });
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
  add_results(answer, rows);
  const std::string first = is_request ? "REQUEST" : answer.key.short_hex();
  const std::string second = is_request ? "NEAREST" : answer.nearest->short_hex();
  print(format_table({{"FIELD"},
                      {.title = first, .may_wrap = true},
                      {.title = second, .may_wrap = true}},
                     rows, out));
}

}  // namespace

Result<WhyAnswer> MissExplainer::explain(const Digest& key, const Compared& wanted,
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
  if (auto nearest = KILN_TRY(entries_.find(key, wanted))) {
    answer.nearest = nearest->key;
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
      each["name"] = answer.label;
      each["template"] = answer.label;
      each["arch"] = answer.arch;
      json["requests"].push_back(std::move(each));
    }
    return print_json(json);
  }
  const bool is_one_arch = std::ranges::all_of(
      answers, [&](const WhyAnswer& each) { return each.arch == answers[0].arch; });
  std::vector<std::vector<std::string>> rows;
  for (const WhyAnswer& answer : answers) {
    if (!answer.same)
      rows.push_back(
          {is_one_arch ? answer.label : fmt::format("{} {}", answer.label, answer.arch),
           answer.nearest ? answer.nearest->short_hex() : "none",
           to_text(answer.differences)});
  }
  print(out.fitted(fmt::format("toolchain {}\n{} is {} kernels: {} in the cache, {}\n",
                               answers[shown].toolchain_note, text, answers.size(),
                               answers.size() - rows.size(),
                               counted(rows.size(), "miss", "misses"))));
  if (!rows.empty())
    print(format_table({{.title = "MISS", .cut = Cut::kEnd},
                        {.title = "NEAREST", .leave_out = 1},
                        {.title = "DIFFERS", .may_wrap = true}},
                       rows, out));
}

}  // namespace kiln::tools
