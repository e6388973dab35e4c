// The options of nvrtcCompileProgram as NVRTC reads them: what a program's own call
// asks for, of which nothing is changed.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/architecture.h"
#include "kiln/result.h"

namespace kiln::request {

/// -D or -U.
struct NvrtcMacro {
  bool is_defined = true;
  std::string text;  // "NAME", "NAME=VALUE"
};

/// What the options of one call say, each option in one of the members.
struct NvrtcOptions {
  /// With -dlto its kind is LTO-IR. nullopt: no option names the architecture.
  std::optional<device::Target> target;
  bool is_lto = false;
  /// -G, -lineinfo or -dlto: the paths of headers, the program's name and the working
  /// directory reach the output.
  bool has_paths = false;
  std::vector<std::string> include_dirs;  // in order
  std::vector<NvrtcMacro> macros;         // in order
  std::vector<std::string> others;  // in order, in one spelling, each with its value
};

/// Sources: NVRTC documentation, "Supported Compile Options"; which spellings take a
/// value, and where, was tried with NVRTC 12.9, 13.0 and 13.5. Errors:
/// kInvalidArgument, naming the option: one that is not known, one whose result is no
/// cubin, PTX or LTO-IR, or that is about other files; one without its value; a second
/// architecture.
[[nodiscard]] Result<NvrtcOptions> read_nvrtc_options(
    std::span<const std::string> options);

}  // namespace kiln::request
