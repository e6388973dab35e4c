// kiln-render-cpu LIST OUTPUT FOLDER VARIANT...: writes the rendered kernels as one C++
// file, each in a namespace of its own, and a function `kiln_cpu::LIST()` that lists
// them. FOLDER is a folder of templates beside those built in, or empty.

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "render/catalog.h"
#include "request/selection.h"

namespace {

kiln::Result<std::string> rendered(std::span<char*> variants, std::string_view list,
                                   std::string_view folder) {
  std::vector<std::filesystem::path> folders;
  if (!folder.empty()) {
    folders.emplace_back(folder);
  }
  auto catalog =
      kiln::render::TemplateCatalog::open(kiln::templates::embedded(), folders);
  if (!catalog) {
    return tl::unexpected(catalog.error());
  }
  std::string text =
      "#include \"tests/support/cpu_kernel/cpu_kernel.h\"\n"
      "#include \"tests/support/cpu_kernel/kernels.h\"\n";
  std::string entries;
  int number = 0;
  for (const char* variant : variants) {
    auto pattern = kiln::request::parse_template_pattern(variant);
    if (!pattern) {
      return tl::unexpected(pattern.error());
    }
    auto kernel = catalog->find(pattern->name);
    if (!kernel) {
      return tl::unexpected(kernel.error());
    }
    auto params = (*kernel)->canonical(pattern->params);
    if (!params) {
      return tl::unexpected(params.error());
    }
    auto source = (*kernel)->render(*params);
    if (!source) {
      return tl::unexpected(source.error());
    }
    const std::string space = fmt::format("{}_{}", list, number++);
    text += fmt::format("namespace {} {{\n{}\n}}\n", space, source->text);
    for (const std::string& entry : (*kernel)->entry_points()) {
      entries += fmt::format("    cpu_kernel<&{}::{}>(\"{}\", \"{}\"),\n", space, entry,
                             variant, entry);
    }
  }
  text += fmt::format(
      "namespace kiln_cpu {{\nCpuKernels {}() {{\n"
      "  static const CpuKernel kKernels[] = {{\n{}}};\n  return kKernels;\n}}\n}}\n",
      list, entries);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    fmt::print(stderr, "usage: kiln-render-cpu LIST OUTPUT FOLDER VARIANT...\n");
    return 2;
  }
  const auto text = rendered(std::span(argv + 4, static_cast<std::size_t>(argc - 4)),
                             argv[1], argv[3]);
  if (!text) {
    fmt::print(stderr, "kiln-render-cpu: {}\n", text.error().message);
    return 1;
  }
  std::ofstream out(argv[2], std::ios::trunc);
  out << *text;
  return out.good() ? 0 : 1;
}
