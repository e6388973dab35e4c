#include "tools/support_matrix/support_matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

namespace kiln::attention {
namespace {

constexpr std::array kArchitectures{ComputeCapability{7, 5},  ComputeCapability{8, 0},
                                    ComputeCapability{8, 6},  ComputeCapability{8, 9},
                                    ComputeCapability{9, 0},  ComputeCapability{10, 0},
                                    ComputeCapability{10, 3}, ComputeCapability{11, 0},
                                    ComputeCapability{12, 0}, ComputeCapability{12, 1}};

CudnnVersion after(CudnnVersion version) {
  ++version.patch;
  return version;
}

std::vector<CudnnVersion> versions_and_next(const RuleSet& rules) {
  std::vector<CudnnVersion> all(rules.versions().begin(), rules.versions().end());
  for (const CudnnVersion each : rules.versions()) all.push_back(after(each));
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

using Ranges = std::vector<SupportedRange>;

/// The gap between two ranges: "9.10.0 and 9.10.1", "9.21.0 to before 9.22.0".
struct Hole {
  CudnnVersion from;
  CudnnVersion until;
  friend bool operator==(const Hole&, const Hole&) = default;
};

std::vector<Hole> holes(const Ranges& ranges) {
  std::vector<Hole> found;
  for (std::size_t i = 0; i + 1 < ranges.size(); ++i)
    found.push_back({*ranges[i].until, ranges[i + 1].from});
  return found;
}

std::string text_of(const Hole& hole) {
  if (hole.until == after(hole.from))
    return to_string(hole.from);
  if (hole.until == after(after(hole.from)))
    return fmt::format("{} and {}", to_string(hole.from), to_string(after(hole.from)));
  return fmt::format("{} to before {}", to_string(hole.from), to_string(hole.until));
}

/// Leaves out the holes in `everywhere`: they are listed once, above the tables.
std::string cell(const Ranges& ranges, const std::vector<Hole>& everywhere) {
  if (ranges.empty())
    return "–";
  std::string text = to_string(ranges.front().from);
  std::vector<std::string> without;
  for (const Hole& hole : holes(ranges)) {
    if (std::ranges::find(everywhere, hole) == everywhere.end())
      without.push_back(text_of(hole));
  }
  if (!without.empty())
    text += fmt::format(" but {}", fmt::join(without, ", "));
  if (ranges.back().until)
    text += fmt::format(" to before {}", to_string(*ranges.back().until));
  return text;
}

/// Holes that no cell's ranges cover, so that they apply to every cell.
std::vector<Hole> holes_everywhere(const std::vector<Ranges>& cells) {
  std::vector<Hole> candidates;
  for (const Ranges& ranges : cells) {
    for (const Hole& hole : holes(ranges)) {
      if (std::ranges::find(candidates, hole) == candidates.end())
        candidates.push_back(hole);
    }
  }
  std::erase_if(candidates, [&](const Hole& hole) {
    return std::ranges::any_of(cells, [&](const Ranges& ranges) {
      return std::ranges::any_of(ranges, [&](const SupportedRange& range) {
        return range.from <= hole.from && (!range.until || *range.until > hole.from);
      });
    });
  });
  return candidates;
}

using Cells = std::vector<std::vector<Ranges>>;  // by row, by architecture

Cells cells_of(const RuleSet& rules, const SupportTable& table) {
  Cells cells;
  for (const SupportRow& row : table.rows) {
    auto& line = cells.emplace_back();
    for (const ComputeCapability arch : kArchitectures)
      line.push_back(supported_ranges(rules, row.problem, arch));
  }
  return cells;
}

/// Neighbouring architectures with equal cells share a column.
std::string markdown(const SupportTable& table, const Cells& cells,
                     const std::vector<Hole>& everywhere) {
  std::vector<std::vector<std::size_t>> columns;
  for (std::size_t arch = 0; arch < kArchitectures.size(); ++arch) {
    const bool is_same = arch > 0 && std::ranges::all_of(cells, [&](const auto& row) {
                           return row[arch] == row[arch - 1];
                         });
    if (!is_same)
      columns.emplace_back();
    columns.back().push_back(arch);
  }
  std::string head = "| problem |";
  std::string rule = "|---|";
  for (const auto& column : columns) {
    std::vector<std::string> names;
    for (const std::size_t arch : column)
      names.push_back(to_string(kArchitectures[arch]));
    head += fmt::format(" {} |", fmt::join(names, ", "));
    rule += "---|";
  }
  std::string text = fmt::format("## {}\n\n{}\n{}\n", table.title, head, rule);
  for (std::size_t row = 0; row < cells.size(); ++row) {
    text += fmt::format("| {} |", table.rows[row].name);
    for (const auto& column : columns)
      text += fmt::format(" {} |", cell(cells[row][column[0]], everywhere));
    text += '\n';
  }
  return text + '\n';
}

constexpr std::string_view word_of(Comparison comparison) {
  constexpr std::array<std::string_view, 8> kWords{
      "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kWords[static_cast<std::size_t>(comparison)];
}

void add_cudnn(const Condition& condition, std::vector<std::string>& texts) {
  for (const Condition& part : condition.parts) add_cudnn(part, texts);
  if (condition.field == nullptr || condition.field->name != "cudnn")
    return;
  std::string text(word_of(condition.comparison));
  std::vector<CudnnVersion> versions;
  collect_versions(condition, versions);
  for (const CudnnVersion version : versions) text += ' ' + to_string(version);
  texts.push_back(std::move(text));
}

std::string rules_table(const RuleSet& rules) {
  std::string text =
      "## Every rule\n\n"
      "Applies: the versions that the rule is about, where it is not about all; needs: "
      "those that it lets\npass, where it is about versions.\n\n"
      "| id | kind | applies | needs | reason |\n|---|---|---|---|---|\n";
  for (const Rule& rule : rules.rules()) {
    std::vector<std::string> applies, needs;
    add_cudnn(rule.applies, applies);
    add_cudnn(rule.needs, needs);
    text += fmt::format("| {} | {} | {} | {} | {} |\n", rule.id, to_string(rule.kind),
                        fmt::join(applies, ", "), fmt::join(needs, ", "), rule.reason);
  }
  return text;
}

}  // namespace

std::vector<SupportedRange> supported_ranges(const RuleSet& rules,
                                             const Problem& problem,
                                             ComputeCapability arch) {
  std::vector<SupportedRange> ranges;
  bool was_supported = false;
  for (const CudnnVersion version : versions_and_next(rules)) {
    const bool is_supported = rules.is_supported({problem, arch, version});
    if (is_supported && !was_supported)
      ranges.push_back({version});
    if (!is_supported && was_supported)
      ranges.back().until = version;
    was_supported = is_supported;
  }
  return ranges;
}

std::string support_matrix(const RuleSet& rules) {
  const std::vector<SupportTable> tables = support_tables();
  std::vector<Cells> cells;
  std::vector<Ranges> all;
  for (const SupportTable& table : tables) {
    cells.push_back(cells_of(rules, table));
    for (const auto& row : cells.back()) all.insert(all.end(), row.begin(), row.end());
  }
  const std::vector<Hole> everywhere = holes_everywhere(all);
  std::vector<std::string> bad;
  for (const Hole& hole : everywhere) bad.push_back(text_of(hole));

  std::string text =
      "# What cuDNN's fused attention supports\n\n"
      "Written from the [rules](rules/README.md) by\n"
      "`cmake --build --preset dev --target support-matrix`; a test fails while this "
      "is "
      "not what they say.\n\n"
      "A cell is the first version of cuDNN that runs the problem on that compute "
      "capability, and after\n\"but\" the later ones that have a known bug; – is "
      "never. "
      "By the rules alone: cuDNN itself may still\nrefuse. Where nothing else is said "
      "a "
      "problem is bf16, batch 2, 16 heads, 1024 by 1024, bshd, with\nno mask. Before "
      "compute capability 8.0 there is nothing.\n\n";
  if (!bad.empty())
    text += fmt::format("Every cell is without {}.\n\n", fmt::join(bad, ", "));
  for (std::size_t i = 0; i < tables.size(); ++i)
    text += markdown(tables[i], cells[i], everywhere);
  return text + rules_table(rules);
}

}  // namespace kiln::attention
