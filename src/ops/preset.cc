#include "ops/preset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "interface/enumeration_words.h"
#include "render/toml_table.h"
#include "util/nearest.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::ops {
namespace {

using render::TomlTable;

constexpr std::size_t kMostBytes = 64U << 10U;

/// What `parsed` has; its error names the key.
template <typename Value>
Result<Value> value_of(const TomlTable& table, std::string_view key,
                       Result<Value> parsed) {
  if (!parsed)
    return table.error("'{}': {}", key, parsed.error().message);
  return parsed;
}

template <typename Enum>
Result<Enum> required_word(const TomlTable& table, std::string_view key) {
  return value_of(table, key, parse_word<Enum>(KILN_TRY(table.required_string(key))));
}

Result<void> check_size(const TomlTable& table, std::string_view key,
                        std::int64_t size) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (size < 1 || size > kMost)
    return table.error("'{}' is {}, no size from 1 to {}", key, size, kMost);
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
  attention.mask = KILN_TRY(required_word<SoftmaxMask>(*table, "mask"));
  return attention;
}

Result<std::optional<Preset::Rope>> read_rope(const TomlTable& file) {
  const auto table = KILN_TRY(part(file, "rope", {"style", "dim"}));
  if (!table)
    return std::nullopt;
  Preset::Rope rope{.dim = KILN_TRY(size_of(*table, "dim"))};
  rope.style = KILN_TRY(required_word<RopeStyle>(*table, "style"));
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
  constexpr std::array<std::string_view, 2> kKinds{"layernorm", "rmsnorm"};
  const bool is_rmsnorm =
      KILN_TRY(
          value_of(*table, "kind",
                   position_of(KILN_TRY(table->required_string("kind")), kKinds))) == 1;
  if (const auto type = KILN_TRY(table->string("weight_dtype")))
    norm.weight_dtype =
        KILN_TRY(value_of(*table, "weight_dtype", parse_word<DType>(*type)));
  const auto casting = KILN_TRY(table->string("casting"));
  if (!is_rmsnorm && casting)
    return table->error("'casting' is rmsnorm's alone");
  if (is_rmsnorm)
    norm.rmsnorm = KILN_TRY(value_of(
        *table, "casting", parse_word<RmsNormCasting>(casting.value_or("none"))));
  return norm;
}

Result<std::optional<Preset::Activation>> read_activation(const TomlTable& file) {
  const auto table =
      KILN_TRY(part(file, "activation", {"kind", "bias", "weighted", "widths"}));
  if (!table)
    return std::nullopt;
  Preset::Activation activation{.bias = KILN_TRY(table->boolean("bias", false)),
                                .weighted = KILN_TRY(table->boolean("weighted", false)),
                                .widths = KILN_TRY(sizes_of(*table, "widths"))};
  const std::string kind = KILN_TRY(table->required_string("kind"));
  if (const auto plain = parse_word<ActivationKind>(kind)) {
    activation.plain = *plain;
  } else {
    const auto kinds = words_of<ActivationKind>();
    std::vector<std::string_view> all(kinds.begin(), kinds.end());
    std::ranges::copy(words_of<GluKind>(), std::back_inserter(all));
    KILN_TRY(value_of(*table, "kind", position_of(kind, all)));
    activation.gated = parse_word<GluKind>(kind).value();
  }
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
  preset.dtype = KILN_TRY(required_word<DType>(top, "dtype"));
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
  return fail(ErrorCode::kNotFound, "no preset '{}' among {}, and no file NAME.toml{}",
              name, fmt::join(names, ", "), did_you_mean(name, names));
}

}  // namespace kiln::ops
