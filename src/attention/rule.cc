#include "attention/rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "render/toml_table.h"
#include "util/nearest.h"
#include "util/try.h"

namespace kiln::attention {
namespace {

using render::located;
using render::toml_error;
using render::TomlTable;

constexpr std::size_t kMostBytes = 256U << 10U;
constexpr std::array<std::string_view, 3> kKinds{"support", "known_bug",
                                                 "framework_policy"};

Result<Condition> read_condition(std::string_view file, const toml::node& node);

Result<std::vector<Condition>> read_conditions(std::string_view file,
                                               const toml::node& node) {
  const auto* const array = node.as_array();
  if (array == nullptr || array->empty())
    return toml_error(file, node, "conditions are an array of at least one");
  std::vector<Condition> conditions;
  for (const toml::node& each : *array)
    conditions.push_back(KILN_TRY(read_condition(file, each)));
  return conditions;
}

Result<Condition> read_condition(std::string_view file, const toml::node& node) {
  if (const auto* const text = node.as_string())
    return located(file, node, parse_comparison(text->get()));
  const auto* const table = node.as_table();
  if (table == nullptr || table->size() != 1)
    return toml_error(file, node,
                      "a condition is a string or one of {{ all, any, not = [...] }}");
  const auto only = table->cbegin();  // the pair lives in the iterator
  const auto& [key, parts] = *only;
  using Kind = Condition::Kind;
  Condition condition;
  if (key.str() == "all")
    condition.kind = Kind::kAll;
  else if (key.str() == "any")
    condition.kind = Kind::kAny;
  else if (key.str() == "not")
    condition.kind = Kind::kNot;
  else
    return toml_error(
        file, node, "conditions are joined by all, any or not, not by '{}'", key.str());
  condition.parts = KILN_TRY(read_conditions(file, parts));
  return condition;
}

/// All conditions of an array; without one, a condition that always holds.
Result<Condition> read_all(const TomlTable& table, std::string_view key) {
  Condition all;
  if (const toml::node* const node = table.find(key))
    all.parts = KILN_TRY(read_conditions(table.file(), *node));
  return all;
}

Result<Change> read_change(std::string_view file, std::string_view name,
                           const toml::node& node) {
  Change change{.field = KILN_TRY(located(file, node, find_field(name)))};
  if (change.field->write == nullptr)
    return toml_error(file, node, "'{}' cannot be changed", name);
  const std::string text = render::scalar_text(node).value_or("");
  constexpr std::string_view kRound = "round_up ";
  if (text.starts_with(kRound)) {
    const auto multiple = KILN_TRY(
        located(file, node, parse_operand(*change.field, text.substr(kRound.size()))));
    const auto* const value = std::get_if<FieldValue>(&multiple);
    if (change.field->kind != FieldKind::kNumber || value == nullptr ||
        !(std::get<double>(*value) > 0))
      return toml_error(file, node, "'round_up' is followed by a size");
    change.multiple = std::get<double>(*value);
    change.value = change.field;
    return change;
  }
  change.value = KILN_TRY(located(file, node, parse_operand(*change.field, text)));
  return change;
}

Result<Remedy> read_remedy(std::string_view file, const toml::node& node) {
  const auto* const found = node.as_table();
  if (found == nullptr)
    return toml_error(file, node, "a remedy is a table");
  const auto table = KILN_TRY(TomlTable::open(
      *found, file, "the remedy", {"upgrade_cudnn", "change", "advice", "when"}));
  Remedy remedy{.when = KILN_TRY(read_all(table, "when"))};
  const auto advice = KILN_TRY(table.string("advice"));
  if (const auto version = KILN_TRY(table.string("upgrade_cudnn"))) {
    if (advice || table.find("change") != nullptr)
      return table.error("an upgrade stands alone");
    remedy.upgrade = KILN_TRY(located(file, node, parse_cudnn_version(*version)));
    return remedy;
  }
  if (!advice || advice->empty())
    return table.error("it needs 'upgrade_cudnn' or 'advice'");
  remedy.text = *advice;
  if (const toml::table* const changes = KILN_TRY(table.table("change"))) {
    for (const auto& [key, value] : *changes)
      remedy.changes.push_back(KILN_TRY(read_change(file, key.str(), value)));
  }
  return remedy;
}

Result<RuleKind> read_kind(const TomlTable& table) {
  const std::string word = KILN_TRY(table.required_string("kind"));
  const auto* const found = std::ranges::find(kKinds, word);
  if (found == kKinds.end())
    return table.error(
        "'kind' is '{}'{}", word,
        did_you_mean(word, std::vector<std::string>(kKinds.begin(), kKinds.end())));
  return static_cast<RuleKind>(found - kKinds.begin());
}

Result<std::vector<Remedy>> read_remedies(const TomlTable& table) {
  const toml::array* const array = KILN_TRY(table.array("remedy"));
  if (array == nullptr || array->empty())
    return table.missing("remedy");
  std::vector<Remedy> remedies;
  for (const toml::node& node : *array)
    remedies.push_back(KILN_TRY(read_remedy(table.file(), node)));
  return remedies;
}

/// An upgrade to a version that the rule itself refuses would be no remedy.
Result<void> check_upgrades(const TomlTable& table, const Rule& rule) {
  for (const Remedy& remedy : rule.remedies) {
    for (const Condition& need : rule.needs.parts) {
      if (remedy.upgrade && need.kind == Condition::Kind::kCompare &&
          compares_cudnn(need) && !holds(need, {{}, {}, *remedy.upgrade}))
        return table.error("'upgrade_cudnn' is {}, which is refused, too",
                           to_string(*remedy.upgrade));
    }
  }
  return {};
}

Result<Rule> read_rule(const toml::table& found, std::string_view file) {
  const auto table = KILN_TRY(TomlTable::open(
      found, file, "[[rule]]",
      {"id", "kind", "applies", "needs", "reason", "remedy", "source"}));
  // Set one by one: a return within an initializer would leak the members made so far.
  Rule rule;
  rule.id = KILN_TRY(table.required_string("id"));
  rule.place = fmt::format("{}:{}", file, found.source().begin.line);
  rule.kind = KILN_TRY(read_kind(table));
  rule.applies = KILN_TRY(read_all(table, "applies"));
  rule.needs = KILN_TRY(read_all(table, "needs"));
  rule.reason = KILN_TRY(table.required_string("reason"));
  rule.remedies = KILN_TRY(read_remedies(table));
  rule.sources = KILN_TRY(table.strings("source"));
  if (rule.id.empty() ||
      rule.id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.") !=
          std::string::npos)
    return table.error("'id' is lower-case words joined by dots");
  if (rule.reason.empty())
    return table.missing("reason");
  if (rule.sources.empty() || std::ranges::count(rule.sources, "") > 0)
    return table.missing("source");
  if (rule.needs.parts.empty())
    return table.missing("needs");
  KILN_TRY(check_upgrades(table, rule));
  return rule;
}

}  // namespace

std::string_view to_string(RuleKind kind) {
  return kKinds[static_cast<std::size_t>(kind)];
}

Result<std::vector<Rule>> parse_rules(std::string_view text, std::string_view file) {
  const toml::table document = KILN_TRY(render::parse_toml(text, file, kMostBytes));
  const auto top =
      KILN_TRY(TomlTable::open(document, file, "the file", {"schema", "rule"}));
  if (KILN_TRY(top.required_integer("schema")) != 1)
    return top.error("'schema' must be 1");
  std::vector<Rule> rules;
  for (const toml::table* const each : KILN_TRY(top.tables("rule")))
    rules.push_back(KILN_TRY(read_rule(*each, file)));
  if (rules.empty())
    return top.error("there is no [[rule]]");
  KILN_TRY(check_ids(rules));
  return rules;
}

Result<void> check_ids(std::span<const Rule> rules) {
  std::map<std::string_view, std::string_view> places;
  for (const Rule& rule : rules) {
    const auto [first, is_new] = places.emplace(rule.id, rule.place);
    if (!is_new)
      return refuse("{}: there is a rule '{}' already: {}", rule.place, rule.id,
                    first->second);
  }
  return {};
}

}  // namespace kiln::attention
