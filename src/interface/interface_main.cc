// kiln-interface: runs when Kiln is built. Reads the headers of operations, and writes
// below a folder what follows from them:
//   kiln-interface INCLUDE_DIR OUTPUT_DIR kiln/ops/HEADER.h...
// Exit code 1 with the reason on stderr if a header has a form that it does not know.

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <vector>

#include "interface/c_interface.h"
#include "interface/python_interface.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/write_file.h"

namespace kiln::interface {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = 1 << 20;

/// What includes a file that stays as it is need not be compiled again.
Result<void> write_if_changed(const fs::path& path, const std::string& text) {
  const auto before = read_text_file(path, kMostBytes);
  if (before && *before == text)
    return {};
  std::error_code ignored;  // replace_file() says why there is no folder
  fs::create_directories(path.parent_path(), ignored);
  return replace_file(path, as_bytes(text), 0644);
}

Result<void> write(const fs::path& include_dir, const fs::path& output_dir,
                   std::span<char* const> paths) {
  std::vector<OperationHeader> headers;
  for (const char* const path : paths) {
    const auto text = KILN_TRY(read_text_file(include_dir / path, kMostBytes));
    headers.push_back(KILN_TRY(about(path, read_operation_header(path, text))));
  }
  for (const auto& [path, text] :
       {std::pair{"kiln/c_operations.h", c_header(headers)},
        {"c/operation_structs.h", c_glue(headers)},
        {"ops/operation_table.h", operation_table(headers)},
        {"interface/enumeration_words.h",
         Result<std::string>(enumeration_words(headers))},
        {"python/operation_parameters.h", python_parameters(headers)}}) {
    KILN_TRY(write_if_changed(output_dir / path, KILN_TRY(text)));
  }
  return {};
}

}  // namespace
}  // namespace kiln::interface

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: kiln-interface INCLUDE_DIR OUTPUT_DIR HEADER...\n");
    return 2;
  }
  const auto done = kiln::interface::write(
      argv[1], argv[2], std::span(argv, static_cast<std::size_t>(argc)).subspan(3));
  if (!done)
    fmt::print(stderr, "kiln-interface: {}\n", done.error().message);
  return done ? 0 : 1;
}
