#include "tests/integration/attention/differences.h"

#include <algorithm>

#include "render/toml_table.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::test {
namespace {

using render::TomlTable;

constexpr std::size_t kMostBytes = 64U << 10U;

Result<Difference> read_difference(const toml::table& node, const std::string& file) {
  const auto table =
      KILN_TRY(TomlTable::open(node, file, "[[difference]]",
                               {"rule", "message", "applies", "examples", "reason"}));
  Difference difference{.rule = KILN_TRY(table.string("rule")).value_or(""),
                        .message = KILN_TRY(table.string("message")).value_or(""),
                        .applies = {},
                        .examples = KILN_TRY(table.strings("examples")),
                        .reason = KILN_TRY(table.required_string("reason"))};
  for (const std::string& text : KILN_TRY(table.strings("applies")))
    difference.applies.push_back(KILN_TRY(attention::parse_comparison(text)));
  if (difference.rule.empty() == difference.message.empty())
    return table.error("either a rule or a message");
  if (difference.examples.empty())
    return table.missing("examples");
  return difference;
}

}  // namespace

bool Difference::explains(const Probed& probed, const std::string& refusing) const {
  const bool is_meant =
      probed.is_built
          ? rule == refusing
          : !message.empty() && probed.message.find(message) != std::string::npos;
  return is_meant && std::ranges::all_of(applies, [&](const auto& condition) {
           return holds(condition, probed.question);
         });
}

Result<Differences> read_differences(const std::string& file) {
  const std::string text = KILN_TRY(read_text_file(file, kMostBytes));
  const toml::table document = KILN_TRY(render::parse_toml(text, file, kMostBytes));
  const auto top =
      KILN_TRY(TomlTable::open(document, file, "the file", {"cudnn", "difference"}));
  Differences differences;
  differences.cudnn =
      KILN_TRY(attention::parse_cudnn_version(KILN_TRY(top.required_string("cudnn"))));
  for (const toml::table* const each : KILN_TRY(top.tables("difference")))
    differences.list.push_back(KILN_TRY(read_difference(*each, file)));
  return differences;
}

std::vector<const Difference*> explanation_of(std::span<const Difference> differences,
                                              const Probed& probed) {
  std::vector<const Difference*> found;
  const auto refusing =
      probed.is_built ? probed.rules : std::vector<std::string>{std::string()};
  for (const std::string& rule : refusing) {
    const auto difference = std::ranges::find_if(
        differences,
        [&](const Difference& each) { return each.explains(probed, rule); });
    if (difference == differences.end())
      return {};
    found.push_back(&*difference);
  }
  return found;
}

}  // namespace kiln::test
