#include "tests/integration/pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/support/paths.h"
#include "util/read_file.h"

namespace kiln::test {

std::vector<std::string> lines_of(const std::string& file) {
  std::istringstream text(read_text_file(paths::source("") + file, 1U << 20U).value());
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::string without_indentation(const std::string& line) {
  return line.substr(std::min(line.find_first_not_of(' '), line.size()));
}

std::vector<std::string> section_of(const std::string& page,
                                    const std::string& heading) {
  std::vector<std::string> section;
  bool is_in = false;
  for (const std::string& line : lines_of(page)) {
    if (line.starts_with("## "))
      is_in = line == "## " + heading;
    if (is_in)
      section.push_back(line);
  }
  return section;
}

std::vector<std::string> code_lines(const std::vector<std::string>& text,
                                    const std::string& language) {
  std::vector<std::string> lines;
  std::string fence;  // that opened the block; "" outside
  for (const std::string& line : text) {
    if (line.starts_with("```"))
      fence = fence.empty() ? line : "";
    else if (fence == "```" + language)
      lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> code_lines_of(const std::string& page,
                                       const std::string& heading,
                                       const std::string& language) {
  return code_lines(section_of(page, heading), language);
}

void expect_in_order(const std::vector<std::string>& lines, const std::string& file) {
  ASSERT_FALSE(lines.empty());
  auto wanted = lines.begin();
  for (const std::string& line : lines_of(file)) {
    if (wanted != lines.end() &&
        without_indentation(line) == without_indentation(*wanted))
      ++wanted;
  }
  EXPECT_TRUE(wanted == lines.end()) << file << " has not, or not there: " << *wanted;
}

}  // namespace kiln::test
