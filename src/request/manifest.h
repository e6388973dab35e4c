// Manifests: JSON Lines, one request a line, contents inline. What KILN_RECORD writes
// and `warm --manifest` reads.
//   {"template":"scaled_softmax_fwd","params":{"dtype":"bf16"},"arch":"9.0"}
//   {"source":"...","file":"k.cu","headers":{},"include_dirs":[],"defines":[],
//    "std":"c++20","options":[],"names":[],"arch":"9.0a"}
//   {"sources":[{"source":"...",...},...],"link_files":[],"link_options":[],"arch":"9.0"}
// "file" is the name that the compiler sees; without it, kernel.cu. "std" is the option
// --std, put before the others. With "as_nvrtc":true the options are all those of
// NVRTC, and "file" may have a folder: SourceOptions::as_nvrtc. Then "toolchain" is the
// NVRTC that compiles it, "default_arch":true says that no option names "arch", and
// "program", who made the request, is for people alone. "sources" are linked, and so is
// what is in "link_files", also with a single "source".

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/architecture.h"
#include "kiln/request.h"
#include "kiln/result.h"

namespace kiln::request {

struct ManifestEntry {
  Request request;
  std::optional<device::Target> architecture{};  // of the line
  std::size_t line = 0;                          // counted from 1; 0: not read
};

inline constexpr std::uint64_t kMaxManifestBytes = 256U << 20U;
inline constexpr std::size_t kMaxManifestLineBytes = 32U << 20U;
inline constexpr std::size_t kMaxManifestEntries = 100000;

/// What a line asks for, or what is wrong with it: kInvalidArgument, or kResourceLimit
/// above the limit of a line; "<file>:<line>: <what>, key and nearest match".
using ManifestLine = Result<ManifestEntry>;

/// One element for each line that is not blank, in order. `file` is the name in
/// messages; `text` may hold any bytes. Names and parameters are not looked up here.
/// Errors: kResourceLimit above the limits of the whole.
[[nodiscard]] Result<std::vector<ManifestLine>> parse_manifest(std::string_view text,
                                                               std::string_view file);

/// As parse_manifest(), of a file that is read line by line. A relative path in
/// "include_dirs" or "link_files" is below the manifest's own folder. Errors: as
/// parse_manifest; kNotFound, kIo.
[[nodiscard]] Result<std::vector<ManifestLine>> read_manifest(
    const std::filesystem::path& path);

/// A JSON object of parameters: {"dtype": "bf16", "max_cols": 128}. Errors:
/// kInvalidArgument, "parameters: <what>".
[[nodiscard]] Result<Parameters> parse_parameters(std::string_view json);

/// One line with its newline; parse_manifest reads it back as an equal request. Not
/// empty: `program` made the request.
/// Errors: kInvalidArgument for text that is not UTF-8, which JSON cannot carry.
[[nodiscard]] Result<std::string> manifest_line(
    const Request& request, std::optional<device::Target> architecture,
    std::string_view program = {});

}  // namespace kiln::request
