// The parts of a kernel: what its kernel.toml declares, parsed and typed. kernel_file.h
// fills them in, kernel_spec.h uses them. templates/README.md says what they mean.

#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/digest.h"
#include "device/architecture.h"
#include "kiln/result.h"
#include "render/expression.h"
#include "render/template_text.h"

namespace kiln::render {

enum class ParameterType : std::uint8_t { kEnum, kInteger, kBoolean };

/// "enum", "integer", "boolean".
[[nodiscard]] std::string_view to_string(ParameterType type);

struct Parameter {
  std::string name;
  ParameterType type = ParameterType::kEnum;
  std::vector<std::string> values{};           // enum and boolean, as declared
  std::int64_t min = 0;                        // integer, inclusive
  std::int64_t max = 0;                        // integer, inclusive
  bool power_of_two = false;                   // integer
  std::optional<std::string> default_value{};  // canonical; none: required
  std::string meaning;
};

struct LaunchArgument {
  std::string name;
  std::string meaning;
  std::optional<std::int64_t> default_value{};  // none: required
};

/// Everything that determines a rendered text, except the parameters.
struct KernelDigests {
  Digest text;  // of several files: see digest_of() in kernel_file.cc
  Digest kernel_toml;
  Digest prelude;
  Digest renderer;
  friend bool operator==(const KernelDigests&, const KernelDigests&) = default;
};

/// The canonical text of `text` for this parameter: "0128" becomes "128".
/// Errors: kInvalidArgument with the parameter, what is allowed and the nearest value.
[[nodiscard]] Result<std::string> canonical_value(const Parameter& parameter,
                                                  std::string_view text);

/// The slots of a parameter in the symbol table.
struct ParameterSlots {
  std::optional<std::size_t> value{};  // none: an enum of words only
  std::vector<std::size_t> flags{};    // <name>_is_<value>, parallel to its values
};

struct Constant {
  std::string name;
  std::string text;                   // as it appears in the rendered text
  std::optional<std::size_t> slot{};  // none: a string
  std::int64_t value = 0;
};

struct Derived {
  std::string name;
  Expression expression;
  std::size_t slot = 0;
};

struct Condition {
  Expression expression;
  std::string message;
};

struct TargetLimit {
  Expression when;
  device::ComputeCapability minimum;
  std::string reason;
};

struct Targets {
  device::ComputeCapability minimum;
  std::optional<device::ComputeCapability> maximum{};
  std::vector<device::Architecture> suffixed{};
  std::vector<TargetLimit> limits{};
};

struct EntryGeometry {
  std::vector<Expression> grid;   // 1 to 3
  std::vector<Expression> block;  // 1 to 3
  Expression shared_bytes;
};

/// One of the files whose texts, in order, make up the kernel's text.
struct SourceText {
  std::string name;  // "softmax.cu.mustache"
  std::string raw;
  std::optional<TemplateText> body;  // none: parsed when it is rendered
};

struct KernelParts {
  std::string name;
  std::string summary;
  std::string family;
  std::string toml_file;  // for messages
  std::size_t line = 0;   // of [[kernel]] in it
  std::filesystem::path folder;
  std::vector<std::string> entry_points;

  std::vector<Parameter> parameters;
  std::vector<ParameterSlots> slots;  // parallel to parameters
  std::vector<Constant> constants;
  std::vector<Derived> derived;  // each after those that it uses
  SymbolTable symbols;           // parameters, flags, constants, derived
  std::vector<Condition> constraints;
  Targets targets;

  std::vector<LaunchArgument> arguments;  // slots follow those of `symbols`
  std::vector<Condition> require;
  std::vector<EntryGeometry> geometries;  // parallel to entry_points

  std::vector<SourceText> sources;  // 1 to 8
  bool has_include = false;         // in any branch of any of them
  std::shared_ptr<const std::string> prelude;
  KernelDigests digests;
};

/// One product of a set: the values that each parameter takes.
struct SetProduct {
  std::size_t line = 0;
  std::map<std::string, std::vector<std::string>> values{};
};

struct SetDeclarations {
  std::vector<SetProduct> default_set;
  std::vector<SetProduct> quick;  // empty: the first of the default set
};

}  // namespace kiln::render
