#include "key/difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "codec/digest.h"
#include "util/printable.h"

namespace kiln::key {
namespace {

using Values = std::vector<std::string_view>;

constexpr std::size_t kLongText = 200;
constexpr std::size_t kShownLine = 120;
constexpr std::size_t kShownBefore = 40;
constexpr std::size_t kShownDigits = 16;
constexpr std::string_view kGraph = "include_graph";

struct LabelledValues {
  std::vector<std::string_view> labels;  // each once
  std::map<std::string_view, Values> values;
};

LabelledValues by_label(const Fields& fields) {
  LabelledValues result;
  for (const Field& field : fields.list()) {
    Values& values = result.values[field.label];
    if (values.empty())
      result.labels.push_back(field.label);
    values.push_back(field.value);
  }
  return result;
}

// a's labels in a's order; each label that only b has follows its predecessor in b.
std::vector<std::string_view> merged(const LabelledValues& a, const LabelledValues& b) {
  std::vector<std::string_view> labels = a.labels;
  std::size_t behind = 0;
  for (const std::string_view label : b.labels) {
    if (a.values.contains(label)) {
      const auto at = std::ranges::find(labels, label);
      behind = static_cast<std::size_t>(at - labels.begin()) + 1;
    } else {
      labels.insert(labels.begin() + static_cast<std::ptrdiff_t>(behind++), label);
    }
  }
  return labels;
}

// Both lists without their equal beginnings and ends.
std::pair<Values, Values> differing_parts(Values a, Values b) {
  const auto [first_a, first_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  a.erase(a.begin(), first_a);
  b.erase(b.begin(), first_b);
  while (!a.empty() && !b.empty() && a.back() == b.back()) {
    a.pop_back();
    b.pop_back();
  }
  return {std::move(a), std::move(b)};
}

bool is_long(std::string_view text) {
  return text.size() > kLongText || text.find('\n') != text.npos;
}

bool continues_a_character(char byte) {
  return static_cast<unsigned char>(byte) >> 6U == 2;
}

// "sha256 0123456789abcdef, line 7: <that line>", of a long line the part around
// `differs_at`.
std::string describe(std::string_view text, std::size_t line_begin,
                     std::size_t differs_at) {
  if (text.empty())
    return "";
  const auto line = 1 + std::ranges::count(text.substr(0, line_begin), '\n');
  const bool is_far = differs_at - line_begin > kShownLine - kShownBefore;
  std::string_view shown = text.substr(is_far ? differs_at - kShownBefore : line_begin);
  while (is_far && !shown.empty() && continues_a_character(shown.front()))
    shown.remove_prefix(1);
  shown = shown.substr(0, shown.find('\n'));
  return fmt::format("sha256 {}, line {}: {}{}",
                     Digest::of(as_bytes(text)).hex().substr(0, kShownDigits), line,
                     is_far ? "…" : "", printable(shown, kShownLine));
}

FieldDifference make_difference(std::string_view label, std::string_view a,
                                std::string_view b, const Texts& texts) {
  const auto text_a = texts.find(a);
  const auto text_b = texts.find(b);
  if (text_a != texts.end() && text_b != texts.end()) {
    a = text_a->second;
    b = text_b->second;
  } else if (!is_long(a) && !is_long(b)) {
    return {std::string(label), std::string(a), std::string(b)};
  }
  const auto same = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  const std::string_view common =
      a.substr(0, static_cast<std::size_t>(same - a.begin()));
  const std::size_t begin = common.rfind('\n') + 1;  // npos + 1 is the first line
  return {std::string(label), describe(a, begin, common.size()),
          describe(b, begin, common.size())};
}

struct Weight {
  std::string_view start;  // a prefix of the label
  int weight;
};

// What is built weighs most, what builds it weighs least.
constexpr std::array kWeights = {
    Weight{"kernel", 10'000},      Weight{"source", 10'000},
    Weight{"kind", 1'000},         Weight{"target", 1'000},
    Weight{"template/", 100},      Weight{"parameter/", 30},
    Weight{"macro", 20},           Weight{"option", 20},
    Weight{"name_expression", 20}, Weight{"header/", 10},
    Weight{"memory_header/", 10},  Weight{"toolkit", 5},
    Weight{"toolchain/", 5},       Weight{kGraph, 1}};

int weight_of(std::string_view label) {
  for (const Weight& known : kWeights) {
    if (label.starts_with(known.start))
      return known.weight;
  }
  return 10;
}

std::int64_t distance(LabelledValues a, LabelledValues b) {
  std::int64_t sum = 0;
  for (const std::string_view label : merged(a, b)) {
    const auto [left, right] = differing_parts(a.values[label], b.values[label]);
    sum += weight_of(label) *
           static_cast<std::int64_t>(std::max(left.size(), right.size()));
  }
  return sum;
}

}  // namespace

bool is_text(std::string_view field) {
  return field == "source" || field == "source_sha256" ||
         field.starts_with("header/") || field.starts_with("memory_header/");
}

std::vector<FieldDifference> differences(const Fields& a, const Fields& b,
                                         const Texts& texts) {
  LabelledValues left = by_label(a);
  LabelledValues right = by_label(b);
  std::vector<FieldDifference> result;
  for (const std::string_view label : merged(left, right)) {
    const auto [in_a, in_b] = differing_parts(left.values[label], right.values[label]);
    for (std::size_t i = 0; i < std::max(in_a.size(), in_b.size()); ++i) {
      result.push_back(make_difference(label, i < in_a.size() ? in_a[i] : "",
                                       i < in_b.size() ? in_b[i] : "", texts));
    }
  }
  if (result.empty() && a != b)
    result.push_back({"order", "other fields in between", ""});
  // Another header or source explains why the includes found other headers.
  if (std::ranges::any_of(result, is_text, &FieldDifference::field))
    std::erase_if(result, [](const FieldDifference& difference) {
      return difference.field == kGraph;
    });
  return result;
}

std::optional<std::size_t> nearest_preimage(const Fields& wanted,
                                            std::span<const Fields> candidates) {
  std::optional<std::size_t> best;
  std::int64_t least = 0;
  const LabelledValues wanted_values = by_label(wanted);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::int64_t far = distance(wanted_values, by_label(candidates[i]));
    if (!best || far < least) {
      best = i;
      least = far;
    }
  }
  return best;
}

}  // namespace kiln::key
