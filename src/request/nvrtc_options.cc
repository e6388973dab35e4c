#include "request/nvrtc_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "util/text.h"
#include "util/try.h"

namespace kiln::request {
namespace {

enum class Value : std::uint8_t {
  kNone,
  kJoined,    // "-fmad=false"
  kNext,      // "-fmad=false", or the next option
  kAttached,  // "-DX", "-D X", "-D=X", or the next option
};

enum class Meaning : std::uint8_t {
  kOther,
  kArchitecture,
  kLto,
  kPaths,
  kInclude,
  kDefine,
  kUndefine,
  kRefused,
};

struct Row {
  std::string_view names;  // separated by a blank
  Value value = Value::kNone;
  Meaning meaning = Meaning::kOther;
  std::string_view why = {};  // of kRefused
};

constexpr std::string_view kOtherOutput = "its result is no cubin, PTX or LTO-IR";
constexpr std::string_view kFiles = "it reads or writes files beside the image";

using enum Value;
using enum Meaning;
// Names of one row mean the same, but for those that are refused.
constexpr Row kRows[] = {
    {"--gpu-architecture -arch", kNext, kArchitecture},
    {"--dlink-time-opt -dlto", kNone, kLto},
    {"--device-debug -G", kNone, kPaths},
    {"--generate-line-info -lineinfo", kNone, kPaths},
    {"--include-path", kNext, kInclude},
    {"-I", kAttached, kInclude},
    {"--define-macro", kNext, kDefine},
    {"-D", kAttached, kDefine},
    {"--undefine-macro", kNext, kUndefine},
    {"-U", kAttached, kUndefine},
    {"--pre-include -include", kNext},
    {"--no-source-include -no-source-include"},
    {"--std -std", kJoined},
    {"--builtin-move-forward", kNext},
    {"--builtin-initializer-list", kNext},
    {"--device-c -dc"},
    {"--device-w -dw"},
    {"--relocatable-device-code -rdc", kNext},
    {"--extensible-whole-program -ewp"},
    {"--dopt -dopt", kNext},
    {"--Ofast-compile -Ofc", kNext},
    {"--ptxas-options -Xptxas", kNext},
    {"--maxrregcount -maxrregcount", kNext},
    {"--ftz -ftz", kNext},
    {"--prec-sqrt -prec-sqrt", kNext},
    {"--prec-div -prec-div", kNext},
    {"--fmad -fmad", kNext},
    {"--use_fast_math -use_fast_math"},
    {"--extra-device-vectorization -extra-device-vectorization"},
    {"--modify-stack-limit -modify-stack-limit", kNext},
    {"--jump-table-density -jtd", kNext},
    {"--device-stack-protector -device-stack-protector", kNext},
    {"--split-compile -split-compile", kNext},
    {"--frandom-seed -frandom-seed", kJoined},
    {"--no-cache -no-cache"},
    {"--disable-warnings -w"},
    {"--restrict -restrict"},
    {"--device-as-default-execution-space -default-device"},
    {"--device-int128 -device-int128"},
    {"--device-float128 -device-float128"},
    {"--optimization-info -opt-info", kJoined},
    {"--display-error-number -err-no"},
    {"--no-display-error-number -no-err-no"},
    {"--diag-error -diag-error", kNext},
    {"--diag-suppress -diag-suppress", kNext},
    {"--diag-warn -diag-warn", kNext},
    {"--brief-diagnostics -brief-diag", kNext},
    {"--warning-as-error -Werror", kJoined},
    {"--version-ident -dQ", kNext},
    {"--minimal -minimal"},
    {"--gen-opt-lto -gen-opt-lto", kNone, kRefused, kOtherOutput},
    {"--optix-ir -optix-ir", kNone, kRefused, kOtherOutput},
    {"--fdevice-syntax-only -fdevice-syntax-only", kNone, kRefused, kOtherOutput},
    {"--tile-only --enable-tile", kNone, kRefused, kOtherOutput},
    {"--pch -pch", kNone, kRefused, kFiles},
    {"--create-pch -create-pch --use-pch -use-pch", kJoined, kRefused, kFiles},
    {"--pch-dir -pch-dir", kJoined, kRefused, kFiles},
    {"--pch-verbose -pch-verbose --pch-messages -pch-messages", kNext, kRefused,
     kFiles},
    {"--instantiate-templates-in-pch -instantiate-templates-in-pch", kNext, kRefused,
     kFiles},
    {"--use-bundled-headers -use-bundled-headers", kNext, kRefused, kFiles},
    {"--time -time", kJoined, kRefused, "its result differs in each compile"},
    {"--fdevice-time-trace -fdevice-time-trace", kJoined, kRefused, kFiles},
};

std::string_view first_name(const Row& row) {
  return row.names.substr(0, row.names.find(' '));
}

/// One option, and the entries of the list that it takes.
struct Taken {
  const Row* row = nullptr;
  std::string_view name;
  std::optional<std::string> value;  // nullopt: it has none
  std::size_t entries = 1;
};

/// The value behind `name` in the option's own text; nullopt: not this option.
std::optional<std::string_view> own_value(std::string_view option,
                                          std::string_view name, Value how) {
  if (!option.starts_with(name))
    return std::nullopt;
  std::string_view rest = option.substr(name.size());
  if (how == kAttached) {
    if (rest.starts_with('='))
      rest.remove_prefix(1);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    return rest;
  }
  if (rest.empty())
    return rest;
  return how != kNone && rest.starts_with('=') ? std::optional(rest.substr(1))
                                               : std::nullopt;
}

std::optional<Taken> take(std::span<const std::string> options, const Row& row,
                          std::string_view name) {
  // NVRTC cuts the blanks around an entry off.
  const std::string_view option = trimmed(options.front(), " ");
  const auto value = own_value(option, name, row.value);
  if (!value)
    return std::nullopt;
  Taken taken{.row = &row, .name = name, .value = std::nullopt};
  const bool is_bare = option == name;
  if (row.value == kNone || (is_bare && row.value == kJoined))
    return taken;
  if (!is_bare) {
    taken.value = *value;
  } else if (options.size() > 1) {
    taken.value = trimmed(options[1], " ");
    taken.entries = 2;
  }
  return taken;
}

std::optional<Taken> take(std::span<const std::string> options) {
  for (const Row& row : kRows) {
    for (std::string_view rest = row.names; !rest.empty();) {
      const std::string_view name = next_part(rest, " ");
      if (auto taken = take(options, row, name))
        return taken;
    }
  }
  return std::nullopt;
}

tl::unexpected<Error> refused(std::string_view option, std::string_view why) {
  return refuse("the option '{}': {}", option, why);
}

Result<void> read_architecture(const Taken& taken, NvrtcOptions& read) {
  if (read.target)
    return refused(taken.name, "it is given twice");
  const std::string_view value = *taken.value;
  if (!value.starts_with("sm_") && !value.starts_with("compute_"))
    return refused(taken.name, fmt::format("'{}' is no architecture", value));
  read.target = KILN_TRY(device::parse_target(value));
  return {};
}

}  // namespace

Result<NvrtcOptions> read_nvrtc_options(std::span<const std::string> options) {
  NvrtcOptions read;
  while (!options.empty()) {
    const std::optional<Taken> taken = take(options);
    if (!taken)
      return refused(options.front(), "Kiln does not know it");
    const auto& [row, name, value, entries] = *taken;
    if (row->meaning == kRefused)
      return refused(name, row->why);
    if (row->value != kNone && (!value || value->empty()))
      return refused(name, "it has no value");
    switch (row->meaning) {
      case kArchitecture:
        KILN_TRY(read_architecture(*taken, read));
        break;
      case kLto:
        read.is_lto = true;
        break;
      case kInclude:
        read.include_dirs.push_back(*value);
        break;
      case kDefine:
      case kUndefine:
        read.macros.push_back({row->meaning == kDefine, *value});
        break;
      case kPaths:
        read.has_paths = true;
        [[fallthrough]];
      case kOther:
      case kRefused:
        read.others.push_back(value ? fmt::format("{}={}", first_name(*row), *value)
                                    : std::string(first_name(*row)));
        break;
    }
    options = options.subspan(entries);
  }
  if (read.is_lto && read.target)
    read.target->kind = device::ImageKind::kLtoIr;
  read.has_paths = read.has_paths || read.is_lto;
  return read;
}

}  // namespace kiln::request
