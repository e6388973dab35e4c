#include "ops/preset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>
#include <variant>

#include "render/toml_table.h"
#include "util/nearest.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::ops {
namespace {

using render::TomlTable;

constexpr std::size_t kMostBytes = 64U << 10U;

template <typename Value>
struct Named {
  std::string_view word;
  Value value;
};

template <typename Value>
Result<Value> value_of(const TomlTable& table, std::string_view key,
                       const std::string& word,
                       std::initializer_list<Named<Value>> known) {
  std::vector<std::string> words;
  for (const auto& each : known) {
    if (each.word == word)
      return each.value;
    words.emplace_back(each.word);
  }
  return table.error(fmt::format("'{}' is '{}', none of {}{}", key, word,
                                 fmt::join(words, ", "), did_you_mean(word, words)));
}

Result<void> check_size(const TomlTable& table, std::string_view key,
                        std::int64_t size) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (size < 1 || size > kMost)
    return table.error(
        fmt::format("'{}' is {}, no size from 1 to {}", key, size, kMost));
  return {};
}

Result<std::int64_t> size_of(const TomlTable& table, std::string_view key) {
  const std::int64_t size = KILN_TRY(table.required_integer(key));
  KILN_TRY(check_size(table, key, size));
  return size;
}

Result<std::vector<std::int64_t>> sizes_of(const TomlTable& table,
                                           std::string_view key) {
  auto sizes = KILN_TRY(table.integers(key));
  if (sizes.empty())
    return table.missing(key);
  for (const std::int64_t size : sizes) KILN_TRY(check_size(table, key, size));
  return sizes;
}

Result<DType> dtype_of(const TomlTable& table, std::string_view key,
                       const std::string& word) {
  return value_of<DType>(
      table, key, word,
      {{"f16", DType::kF16}, {"bf16", DType::kBf16}, {"f32", DType::kF32}});
}

Result<std::optional<TomlTable>> part(const TomlTable& file, std::string_view key,
                                      std::initializer_list<std::string_view> keys) {
  const toml::table* found = KILN_TRY(file.table(key));
  if (found == nullptr)
    return std::nullopt;
  return KILN_TRY(TomlTable::open(*found, file.file(), fmt::format("[{}]", key), keys));
}

Result<std::optional<Preset::Attention>> read_attention(const TomlTable& file) {
  const auto table = KILN_TRY(
      part(file, "attention",
           {"heads", "kv_heads", "head_dim", "value_dim", "sequence", "mask"}));
  if (!table)
    return std::nullopt;
  Preset::Attention attention{
      .heads = KILN_TRY(size_of(*table, "heads")),
      .kv_heads = KILN_TRY(size_of(*table, "kv_heads")),
      .head_dim = KILN_TRY(size_of(*table, "head_dim")),
      .value_dim = KILN_TRY(size_of(
          *table, table->integer("value_dim").value_or(std::nullopt) ? "value_dim"
                                                                     : "head_dim")),
      .sequence = KILN_TRY(size_of(*table, "sequence"))};
  attention.mask = KILN_TRY(
      value_of<SoftmaxMask>(*table, "mask", KILN_TRY(table->required_string("mask")),
                            {{"none", SoftmaxMask::kNone},
                             {"bytes", SoftmaxMask::kBytes},
                             {"causal", SoftmaxMask::kCausal}}));
  return attention;
}

Result<std::optional<Preset::Rope>> read_rope(const TomlTable& file) {
  const auto table = KILN_TRY(part(file, "rope", {"style", "dim"}));
  if (!table)
    return std::nullopt;
  Preset::Rope rope{.dim = KILN_TRY(size_of(*table, "dim"))};
  rope.style = KILN_TRY(value_of<RopeStyle>(
      *table, "style", KILN_TRY(table->required_string("style")),
      {{"half", RopeStyle::kHalf}, {"interleaved", RopeStyle::kInterleaved}}));
  return rope;
}

Result<std::optional<Preset::Norm>> read_norm(const TomlTable& file) {
  const auto table = KILN_TRY(part(file, "norm",
                                   {"kind", "casting", "weight", "weight_dtype",
                                    "residual", "from_output", "lengths"}));
  if (!table)
    return std::nullopt;
  Preset::Norm norm{.weight = KILN_TRY(table->boolean("weight", true)),
                    .residual = KILN_TRY(table->boolean("residual", false)),
                    .from_output = KILN_TRY(table->boolean("from_output", false)),
                    .lengths = KILN_TRY(sizes_of(*table, "lengths"))};
  const bool is_rmsnorm =
      KILN_TRY(value_of<bool>(*table, "kind", KILN_TRY(table->required_string("kind")),
                              {{"layernorm", false}, {"rmsnorm", true}}));
  if (const auto type = KILN_TRY(table->string("weight_dtype")))
    norm.weight_dtype = KILN_TRY(dtype_of(*table, "weight_dtype", *type));
  const auto casting = KILN_TRY(table->string("casting"));
  if (!is_rmsnorm && casting)
    return table->error("'casting' is rmsnorm's alone");
  if (is_rmsnorm)
    norm.rmsnorm =
        KILN_TRY(value_of<RmsNormCasting>(*table, "casting", casting.value_or("none"),
                                          {{"none", RmsNormCasting::kNone},
                                           {"llama", RmsNormCasting::kLlama},
                                           {"gemma", RmsNormCasting::kGemma}}));
  return norm;
}

Result<std::optional<Preset::Activation>> read_activation(const TomlTable& file) {
  using Kind = std::variant<ActivationKind, GluKind>;
  const auto table =
      KILN_TRY(part(file, "activation", {"kind", "bias", "weighted", "widths"}));
  if (!table)
    return std::nullopt;
  Preset::Activation activation{.bias = KILN_TRY(table->boolean("bias", false)),
                                .weighted = KILN_TRY(table->boolean("weighted", false)),
                                .widths = KILN_TRY(sizes_of(*table, "widths"))};
  const Kind kind =
      KILN_TRY(value_of<Kind>(*table, "kind", KILN_TRY(table->required_string("kind")),
                              {{"gelu_tanh", ActivationKind::kGeluTanh},
                               {"gelu_erf", ActivationKind::kGeluErf},
                               {"squared_relu", ActivationKind::kSquaredRelu},
                               {"swiglu", GluKind::kSwiglu},
                               {"geglu_tanh", GluKind::kGegluTanh},
                               {"geglu_erf", GluKind::kGegluErf},
                               {"reglu", GluKind::kReglu},
                               {"clamped_swiglu", GluKind::kClampedSwiglu}}));
  if (const auto* const gated = std::get_if<GluKind>(&kind))
    activation.gated = *gated;
  else
    activation.plain = std::get<ActivationKind>(kind);
  if (activation.weighted && (activation.plain || activation.bias))
    return table->error("'weighted' is for gated kinds without a bias");
  return activation;
}

Result<std::optional<std::int64_t>> read_loss(const TomlTable& file) {
  const auto table = KILN_TRY(part(file, "loss", {"vocabulary"}));
  if (!table)
    return std::nullopt;
  return KILN_TRY(size_of(*table, "vocabulary"));
}

}  // namespace

Result<Preset> parse_preset(std::string_view text, std::string name,
                            std::string_view file) {
  const toml::table document = KILN_TRY(render::parse_toml(text, file, kMostBytes));
  const TomlTable top =
      KILN_TRY(TomlTable::open(document, file, "the file",
                               {"schema", "source", "missing", "dtype", "attention",
                                "rope", "norm", "activation", "loss"}));
  if (KILN_TRY(top.required_integer("schema")) != 1)
    return top.error("'schema' must be 1");
  Preset preset;
  preset.name = std::move(name);
  preset.source = KILN_TRY(top.string("source")).value_or("");
  preset.missing = KILN_TRY(top.string("missing")).value_or("");
  preset.dtype =
      KILN_TRY(dtype_of(top, "dtype", KILN_TRY(top.required_string("dtype"))));
  preset.attention = KILN_TRY(read_attention(top));
  preset.rope = KILN_TRY(read_rope(top));
  preset.norm = KILN_TRY(read_norm(top));
  preset.activation = KILN_TRY(read_activation(top));
  preset.vocabulary = KILN_TRY(read_loss(top));
  if (preset.rope && !preset.attention)
    return top.error("[rope] needs the heads of [attention]");
  if (!preset.attention && !preset.norm && !preset.activation && !preset.vocabulary)
    return top.error(
        "it asks for no kernel: give it [attention], [norm], [activation] or [loss]");
  return preset;
}

Result<Preset> find_preset(const std::string& name) {
  if (name.find('/') != std::string::npos || name.ends_with(".toml")) {
    const std::string text = KILN_TRY(read_text_file(name, kMostBytes));
    return parse_preset(text, std::filesystem::path(name).stem(), name);
  }
  std::vector<std::string> names;
  for (const BuiltInPreset& each : built_in_presets()) {
    if (each.name == name)
      return parse_preset(each.text, name, name + ".toml");
    names.emplace_back(each.name);
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("no preset '{}' among {}, and no file NAME.toml{}", name,
                          fmt::join(names, ", "), did_you_mean(name, names)));
}

}  // namespace kiln::ops
