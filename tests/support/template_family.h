// Template families in memory and on disk, for tests.

#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "render/catalog.h"

namespace kiln::test {

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << text;
}

/// `text` with the first `from` replaced; fails the test where there is none.
inline std::string replaced(std::string text, std::string_view from,
                            std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "no '" << from << "' in the test's own text";
  if (at != std::string::npos)
    text.replace(at, from.size(), to);
  return text;
}

/// A small family with every feature of kernel.toml.
inline constexpr std::string_view kScaleToml = R"toml(schema = 1
source = "scale.cu.mustache"

[parameters.dtype]
type = "enum"
values = ["f16", "bf16", "f32"]
required = true
meaning = "element type"

[parameters.max_cols]
type = "enum"
values = [32, 64, 128, "any"]
default = "any"
meaning = "longest row"

[parameters.unroll]
type = "integer"
min = 1
max = 8
power_of_two = true
default = 1
meaning = "elements a thread"

[parameters.in_place]
type = "boolean"
default = false
meaning = "the output may be the input"

[[constraints]]
that = "!in_place || unroll <= 4"
message = "in place only up to 4 elements a thread"

[derived]
shared = "rows_per_block * 33"
rows_per_block = "max_cols_is_any ? 1 : 128 / max_cols"
warp_per_row = "!max_cols_is_any"

[targets]
minimum = "7.5"
suffixed = ["9.0a"]
limits = [{ when = "dtype_is_bf16", minimum = "8.0", reason = "bf16 arithmetic" }]

[launch]
arguments.rows = "rows"
arguments.cols = { meaning = "row length", default = 1 }
grid = ["ceil_div(rows, rows_per_block)"]
block = [128]
shared_bytes = "shared"

[[launch.require]]
that = "max_cols_is_any || cols <= max_cols"
message = "the row is longer than max_cols"

[[kernel]]
name = "scale_fwd"
summary = "y = scale * x"
constants = { backward = false, label = "forward", weight = 3 }
default_set = [
  { dtype = ["f16", "bf16", "f32"], max_cols = [128, "any"] },
  { dtype = "bf16", in_place = true },
]
quick = [{ dtype = "bf16" }]

[[kernel]]
name = "scale_bwd"
summary = "dx = scale * dy"
entry_points = ["scale_bwd", "scale_bwd_finalize"]
constants = { backward = true, label = "backward", weight = 4 }
default_set = [{ dtype = "*" }]

[kernel.launch]
arguments.rows = "rows"
grid = ["rows", 2]
block = [32, 4]
[kernel.launch.entry.scale_bwd_finalize]
grid = [1]
)toml";

inline constexpr std::string_view kScaleText =
    R"text(extern "C" __global__ void <%kernel%>(<%dtype%>* out) {
  // <%label%> <%weight%> <%rows_per_block%> <%in_place%> <%max_cols_is_any%>
<%#warp_per_row%>
  int warp = <%max_cols%>;
<%/warp_per_row%>
<%^warp_per_row%>
  int block;
<%/warp_per_row%>
}
)text";

/// The family above as a catalog's built-in one; texts can be changed before open().
struct BuiltIn {
  std::string prelude = "// prelude\n";
  std::string toml{kScaleToml};
  std::string text{kScaleText};

  [[nodiscard]] Result<render::TemplateCatalog> open(
      const std::vector<std::filesystem::path>& folders = {}) const {
    const std::vector<render::EmbeddedFile> files{{"scale", "kernel.toml", toml},
                                                  {"scale", "scale.cu.mustache", text}};
    const std::vector<render::EmbeddedKernel> kernels{{"scale_bwd", "scale"},
                                                      {"scale_fwd", "scale"}};
    auto catalog = render::TemplateCatalog::open({prelude, files, kernels}, folders);
    if (!catalog)
      return catalog;
    if (const auto all = catalog->kernels(); !all)
      return tl::unexpected(all.error());
    return catalog;
  }

  /// Fails the test where there is none.
  [[nodiscard]] std::shared_ptr<const render::KernelSpec> kernel(
      std::string_view name = "scale_fwd") const {
    const auto catalog = open();
    if (!catalog) {
      ADD_FAILURE() << catalog.error().message;
      return nullptr;
    }
    const auto found = catalog->find(name);
    EXPECT_TRUE(found.has_value());
    return found ? *found : nullptr;
  }

  /// The message of open(), "" where it succeeds.
  [[nodiscard]] std::string error() const {
    const auto catalog = open();
    return catalog ? "" : catalog.error().message;
  }
};

}  // namespace kiln::test
