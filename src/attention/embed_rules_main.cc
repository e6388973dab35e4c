// kiln-embed-rules: runs while Kiln is built. It checks the rules with the code that
// reads them at run time, and writes them as a C++ file.
//   kiln-embed-rules RULES_DIR OUTPUT.cc
// Exit code 1 with "<file>:<line>: <reason>" on stderr if a rule is wrong.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <vector>

#include "attention/rule.h"
#include "util/folder_names.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/write_file.h"

namespace kiln::attention {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = 256U << 10U;

Result<void> embed(const fs::path& folder, const fs::path& output) {
  auto names = folder_names(
      folder, [](std::string_view name) { return name.ends_with(".toml"); });
  if (names.empty())
    return fail(ErrorCode::kNotFound, "{}: no *.toml", folder.string());
  std::ranges::sort(names);
  std::vector<Rule> rules;
  std::string list;
  for (const std::string& name : names) {
    const fs::path file = folder / name;
    const std::string text = KILN_TRY(read_text_file(file, kMostBytes));
    std::ranges::move(KILN_TRY(parse_rules(text, file.native())),
                      std::back_inserter(rules));
    list += fmt::format("      {{\"{}\", R\"kiln({})kiln\"}},\n", name, text);
  }
  KILN_TRY(check_ids(rules));
  const std::string text =
      "// Written by kiln-embed-rules.\n\n#include \"attention/rule.h\"\n\n"
      "namespace kiln::attention {\n\n"
      "std::span<const RuleFile> embedded_rule_files() {\n"
      "  static constexpr RuleFile kFiles[] = {\n" +
      list + "  };\n  return kFiles;\n}\n\n}  // namespace kiln::attention\n";
  return replace_file(output, as_bytes(text), 0644);
}

}  // namespace
}  // namespace kiln::attention

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: kiln-embed-rules RULES_DIR OUTPUT.cc\n");
    return 2;
  }
  const auto done = kiln::attention::embed(argv[1], argv[2]);
  if (!done)
    fmt::print(stderr, "{}\n", done.error().message);
  return done ? 0 : 1;
}
