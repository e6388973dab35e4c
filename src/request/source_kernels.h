// The kernels that the text of a source declares, for messages. Reads the text as it
// is: a kernel that a macro makes, or that a header has, is not found.

#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::request {

struct SourceKernel {
  std::string name;  // without its namespace
  bool is_template = false;
  friend bool operator==(const SourceKernel&, const SourceKernel&) = default;
};

/// In the order of the text, each name once.
[[nodiscard]] std::vector<SourceKernel> kernels_in(std::string_view source);

/// "scale.cu: axpy, scale<float>": a source by its file and its kernels, of many the
/// first few. An absolute path, often of a temporary file, loses its folders.
[[nodiscard]] std::string source_label(const std::filesystem::path& file,
                                       std::vector<std::string> kernels);

}  // namespace kiln::request
