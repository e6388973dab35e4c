// The documents, and the code in them.

#pragma once

#include <string>
#include <vector>

namespace kiln::test {

/// Of a file of the repository.
[[nodiscard]] std::vector<std::string> lines_of(const std::string& file);

[[nodiscard]] std::string without_indentation(const std::string& line);

/// The lines of the page's section `heading` alone.
[[nodiscard]] std::vector<std::string> section_of(const std::string& page,
                                                  const std::string& heading);

/// The lines of the code blocks in `language`, or of those that name none.
[[nodiscard]] std::vector<std::string> code_lines(const std::vector<std::string>& text,
                                                  const std::string& language);

/// Those of the page's section `heading` alone.
[[nodiscard]] std::vector<std::string> code_lines_of(const std::string& page,
                                                     const std::string& heading,
                                                     const std::string& language);

/// Each of `lines` is in `file`, in this order. Indentation does not count.
void expect_in_order(const std::vector<std::string>& lines, const std::string& file);

}  // namespace kiln::test
