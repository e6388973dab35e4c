// kiln-embed: runs when Kiln is built. Checks every template below a folder by the same
// rules as at run time, and writes them as a C++ file.
//   kiln-embed TEMPLATES_DIR OUTPUT.cc
// Exit code 1 with "<file>:<line>: <reason>" on stderr if a rule is broken.

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "render/catalog.h"
#include "render/kernel_file.h"
#include "render/prelude_file.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::render {

namespace {

namespace fs = std::filesystem;

using Kernels = std::vector<std::shared_ptr<const KernelSpec>>;

struct FileText {
  std::string family;
  std::string name;
  std::string text;
};

/// Adjacent string literals, one per line of text, so that the output is readable.
std::string literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n')
      out += "\\n\"\n\"";
    else if (c == '"' || c == '\\')
      out += fmt::format("\\{}", c);
    else if (c < ' ' || c > '~' || c == '?')
      // Three octal digits end an escape; \x would absorb what follows. Two question
      // marks could begin a trigraph.
      out += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + "\"";
}

Result<std::vector<FileText>> read_files(const fs::path& root) {
  std::vector<FileText> out;
  std::error_code status;
  for (const auto& family : fs::directory_iterator(root, status)) {
    if (!fs::exists(family.path() / "kernel.toml", status))
      continue;
    for (const auto& file : fs::directory_iterator(family.path(), status)) {
      const std::string name = file.path().filename().string();
      if (name != "kernel.toml" && !name.ends_with(".cu.mustache"))
        continue;
      auto text = KILN_TRY(read_text_file(file.path(), kMaxTextBytes));
      out.push_back({family.path().filename().string(), name, std::move(text)});
    }
  }
  if (status)
    return fail(ErrorCode::kIo, "{}: {}", root.string(), status.message());
  std::sort(out.begin(), out.end(), [](const FileText& a, const FileText& b) {
    return std::tie(a.family, a.name) < std::tie(b.family, b.name);
  });
  return out;
}

/// `toml`, which the catalog has read, in its order but without comments and without
/// kernels other than `name`. All of `toml` if that cannot be done line by line.
std::string declaration(const std::string& toml, std::string_view name) {
  toml::table wanted = toml::parse(toml);
  toml::array& kernels = *wanted["kernel"].as_array();
  std::map<std::size_t, bool> blocks;  // first line: whether it is this kernel's
  for (std::size_t i = kernels.size(); i-- > 0;) {
    const bool is_it = kernels[i].as_table()->get("name")->value<std::string>() == name;
    blocks.emplace(kernels[i].source().begin.line, is_it);
    if (!is_it)
      kernels.erase(kernels.begin() + static_cast<std::ptrdiff_t>(i));
  }
  std::string out;
  std::istringstream lines(toml);
  bool is_kept = true;
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto block = blocks.find(++number);
    is_kept = block == blocks.end() ? is_kept : block->second;
    const std::size_t first = line.find_first_not_of(" \t");
    if (is_kept && first != std::string::npos && line[first] != '#')
      out += line + '\n';
  }
  // In a string of several lines, a '#' does not begin a comment.
  try {
    return toml::parse(out) == wanted ? out : toml;
  } catch (const toml::parse_error&) {
    return toml;
  }
}

/// The declaration of a kernel that the catalog has read from one of `files`.
std::string declaration(const std::vector<FileText>& files, const KernelSpec& kernel) {
  const auto file = std::find_if(files.begin(), files.end(), [&](const FileText& each) {
    return each.family == kernel.family() && each.name == "kernel.toml";
  });
  return declaration(file->text, kernel.name());
}

std::string generated(std::string_view prelude, const std::vector<FileText>& files,
                      const Kernels& kernels) {
  std::string out =
      "// Written by kiln-embed; the sources are in templates/.\n\n"
      "#include \"render/embedded_templates.h\"\n\n#include <array>\n\n"
      "namespace kiln::templates {\n\nnamespace {\n\n";
  // With explicit lengths, the views are constants and can hold any byte.
  const auto view = [](std::string_view text) {
    return fmt::format("std::string_view({},\n{})", literal(text), text.size());
  };
  const auto sha256 = [](std::string_view text) {
    return fmt::format("\"{}\"", Digest::of(as_bytes(text)).hex());
  };
  out += fmt::format("constexpr std::array<render::EmbeddedFile, {}> kFiles{{{{\n",
                     files.size());
  for (const FileText& file : files)
    out += fmt::format("{{{}, {}, {}, {}}},\n", view(file.family), view(file.name),
                       view(file.text), sha256(file.text));
  out += fmt::format(
      "}}}};\n\nconstexpr std::array<render::EmbeddedKernel, {}> kKernels{{{{\n",
      kernels.size());
  for (const auto& kernel : kernels)
    out += fmt::format("{{{}, {}, {}}},\n", view(kernel->name()),
                       view(kernel->family()), view(declaration(files, *kernel)));
  out += fmt::format(
      "}}}};\n\n"
      "constexpr render::EmbeddedTemplates kTemplates{{{}, kFiles, kKernels, {}}};\n",
      view(prelude), sha256(prelude));
  out +=
      "\n}  // namespace\n\n"
      "const render::EmbeddedTemplates& embedded() { return kTemplates; }\n\n"
      "}  // namespace kiln::templates\n";
  return out;
}

/// Built-in kernels need no header at run time; a user's may include some.
Result<void> check_includes(const Kernels& kernels, const fs::path& root) {
  for (const auto& kernel : kernels) {
    if (kernel->has_include())
      return refuse(
          "{}: {}: a built-in template includes nothing; what it needs belongs into "
          "the prelude",
          (root / kernel->family()).string(), kernel->name());
  }
  return {};
}

Result<void> embed(const fs::path& root, const fs::path& output) {
  const std::string prelude = KILN_TRY(read_prelude(root));
  const EmbeddedTemplates only_prelude{.prelude = prelude};
  const std::vector<fs::path> folders{root};
  const TemplateCatalog catalog =
      KILN_TRY(TemplateCatalog::open(only_prelude, folders));
  const Kernels kernels = KILN_TRY(catalog.kernels());
  KILN_TRY(check_includes(kernels, root));
  const std::string text = generated(prelude, KILN_TRY(read_files(root)), kernels);
  std::ofstream file(output, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file)
    return fail(ErrorCode::kIo, "{}: cannot be written", output.string());
  return {};
}

}  // namespace

}  // namespace kiln::render

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: kiln-embed TEMPLATES_DIR OUTPUT.cc\n");
    return 2;
  }
  const auto done = kiln::render::embed(argv[1], argv[2]);
  if (!done) {
    fmt::print(stderr, "{}\n", done.error().message);
    return 1;
  }
  return 0;
}
