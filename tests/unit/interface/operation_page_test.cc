// docs/operations.md: its tables are those of the headers and of the templates.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interface/c_structs.h"
#include "interface/operation_header.h"
#include "render/catalog.h"
#include "render/embedded_templates.h"
#include "tests/support/golden.h"
#include "tests/support/paths.h"
#include "tests/support/value_of.h"
#include "util/read_file.h"

namespace kiln::interface {
namespace {

using Names = std::vector<std::string>;

std::string text_of(const std::string& file) {
  return test::value_of(read_text_file(test::paths::source(file), 1U << 20U));
}

/// "`a`, `b`".
std::string quoted(const Names& names) {
  return names.empty() ? "" : fmt::format("`{}`", fmt::join(names, "`, `"));
}

/// The paragraph with which the header begins.
std::string meaning_of(const std::string& header) {
  std::string meaning;
  std::istringstream lines(header);
  for (std::string line; std::getline(lines, line) && line != "//";)
    meaning += line.substr(meaning.empty() ? 3 : 2);
  return meaning;
}

/// Rows of a table of Markdown.
struct Table {
  std::string heading;  // the section that has it
  std::string rows;
};

/// The names of an operation's arguments. A part's are "q.in", if it has pointers.
struct Arguments {
  Names reads;
  Names writes;
  Names others;

  void add(const OperationHeader& header, const Struct& of, const std::string& before) {
    for (const Field& field : header.all_fields(of)) {
      const Struct* const part = header.find_struct(field.type);
      if (part != nullptr && std::ranges::any_of(part->fields, &Field::is_pointer))
        add(header, *part, before + field.name + ".");
      else if (!field.is_pointer())
        others.push_back(before + field.name);
      else
        (field.type.starts_with("const ") ? reads : writes)
            .push_back(before + field.name);
    }
  }

  /// Of structs that both passes take: the forward pass knows no gradient, and the
  /// backward pass reads what the forward pass writes.
  void keep_of_pass(std::string_view operation) {
    const auto is_gradient = [](const std::string& name) {
      return name.find("grad_") != std::string::npos;
    };
    if (operation.ends_with("forward")) {
      std::erase_if(reads, is_gradient);
      std::erase_if(writes, is_gradient);
      return;
    }
    std::erase_if(writes, [&](const std::string& name) {
      const bool is_read = !is_gradient(name) && !name.ends_with("workspace");
      if (is_read)
        reads.push_back(name);
      return is_read;
    });
  }
};

/// "problem.": the last word of AttentionProblem, as in the C functions' parameters.
std::string prefix_of(const std::string& name) {
  const std::size_t word = name.find_last_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ");
  return snake(name.substr(word)) + ".";
}

std::pair<Table, Table> tables_of_headers() {
  Table headers{"## Operations from C++",
                "| header | what | operations |\n|---|---|---|\n"};
  Table arguments{
      "## Arguments",
      "| operation | reads | writes | sizes and options |\n|---|---|---|---|\n"};
  std::set<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::paths::source("src/kiln/ops")))
    paths.insert("kiln/ops" / entry.path().filename());
  for (const auto& path : paths) {
    const std::string text = text_of("src" / path);
    const auto header = test::value_of(read_operation_header(path, text));
    Names all;
    std::map<Names, Names> by_structs;  // the operations that take them
    for (const Operation& operation : header.operations) {
      all.push_back(operation.name);
      by_structs[operation.arguments].push_back(operation.name);
    }
    if (!all.empty())
      headers.rows += fmt::format("| `{}` | {} | {} |\n", path.string(),
                                  meaning_of(text), quoted(all));
    for (const auto& [structs, operations] : by_structs) {
      for (const std::string& operation : operations) {
        Arguments has;
        for (const std::string& name : structs)
          has.add(header, *header.find_struct(name),
                  structs.size() > 1 ? prefix_of(name) : "");
        if (operations.size() > 1)
          has.keep_of_pass(operation);
        arguments.rows +=
            fmt::format("| `{}` | {} | {} | {} |\n", operation, quoted(has.reads),
                        quoted(has.writes), quoted(has.others));
      }
    }
  }
  return {headers, arguments};
}

Table table_of_kernels() {
  Table kernels{"## Kernels", "| kernel | what | parameters |\n|---|---|---|\n"};
  const auto catalog =
      test::value_of(render::TemplateCatalog::open(templates::embedded()));
  for (const auto& kernel : test::value_of(catalog.kernels())) {
    Names parameters;
    for (const render::Parameter& each : kernel->parameters())
      parameters.push_back(
          each.type == render::ParameterType::kEnum
              ? fmt::format("`{}` {}", each.name, fmt::join(each.values, ", "))
              : fmt::format("`{}`", each.name));
    kernels.rows += fmt::format("| `{}` | {} | {} |\n", kernel->name(),
                                kernel->summary(), fmt::join(parameters, "; "));
  }
  return kernels;
}

/// The page with the rows in the place of those that its section has.
std::string with_table(const std::string& page, const Table& table) {
  const std::size_t section = page.find("\n" + table.heading + "\n");
  const std::size_t begin = page.find("\n| ", section);
  const std::size_t end = page.find("\n\n", begin);
  EXPECT_NE(end, page.npos) << table.heading << " has no table";
  return page.substr(0, begin + 1) + table.rows + page.substr(end + 1);
}

TEST(OperationPageTest, ItsTablesAreThoseOfTheHeadersAndTheTemplates) {
  const std::string path = "docs/operations.md";
  const auto [headers, arguments] = tables_of_headers();
  std::string page = text_of(path);
  for (const Table& table : {headers, arguments, table_of_kernels()})
    page = with_table(page, table);
  test::expect_golden(path, page);
}

}  // namespace
}  // namespace kiln::interface
