// What a rule compares: a small vocabulary of fields of the problem, the architecture
// and the version of cuDNN. rules/README.md is its reference.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "attention/cudnn_version.h"
#include "attention/problem.h"
#include "kiln/device.h"
#include "kiln/result.h"

namespace kiln::attention {

/// One question: can cuDNN of that version run this problem on that device?
struct RuleQuestion {
  Problem problem;
  ComputeCapability arch;
  CudnnVersion cudnn;
};

enum class FieldKind : std::uint8_t {
  kNumber,
  kFlag,
  kWord,     // one of `words`
  kVersion,  // of cuDNN: "9.5.0"
  kArch,     // a compute capability: "9.0"
};

using FieldValue = std::variant<double, std::string_view>;

/// Something that a rule can compare. Versions and architectures are numbers here.
struct Field {
  std::string_view name;
  FieldKind kind = FieldKind::kNumber;
  std::span<const std::string_view> words{};
  FieldValue (*read)(const RuleQuestion&) = nullptr;
  /// Null: the field is derived from others and cannot be changed.
  Result<void> (*write)(Problem&, const FieldValue&) = nullptr;
};

/// All fields.
[[nodiscard]] std::span<const Field> fields();
/// Errors: kInvalidArgument, with the nearest name.
[[nodiscard]] Result<const Field*> find_field(std::string_view name);

/// A value, or a field whose value is used.
using Operand = std::variant<FieldValue, const Field*>;
/// Reads `text` as a value of `field`'s kind, or as the name of a field of that kind.
/// The views point into the tables of words. Errors: kInvalidArgument.
[[nodiscard]] Result<Operand> parse_operand(const Field& field, std::string_view text);
[[nodiscard]] FieldValue value_of(const Operand& operand, const RuleQuestion& question);

enum class Comparison : std::uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

/// A tree of comparisons. Thread safety: immutable once built.
struct Condition {
  enum class Kind : std::uint8_t { kAll, kAny, kNot, kCompare, kNever };
  Kind kind = Kind::kAll;
  std::vector<Condition> parts{};  // of kAll, kAny, kNot; kNot: not all hold
  const Field* field = nullptr;
  double modulo = 0;  // 0: compares the field itself, not its remainder
  Comparison comparison = Comparison::kEqual;
  std::vector<Operand> operands{};
};

/// "dqk > 128", "skv % 64 != 0", "mask in none padding", "window", "never".
/// Errors: kInvalidArgument.
[[nodiscard]] Result<Condition> parse_comparison(std::string_view text);

[[nodiscard]] bool holds(const Condition& condition, const RuleQuestion& question);

/// Does it compare the version of cuDNN anywhere?
[[nodiscard]] bool compares_cudnn(const Condition& condition);
/// Adds each version that it compares with.
void collect_versions(const Condition& condition, std::vector<CudnnVersion>& versions);

}  // namespace kiln::attention
