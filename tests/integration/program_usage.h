// The fixture of the tests of what kiln refuses: nothing is done, and one sentence says
// why.

#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {

class ProgramUsageTest : public testing::Test {
 protected:
  using Arguments = test::KilnProgram::Arguments;

  /// `arguments` fail before any work: the status, one sentence with `words` in it on
  /// stderr, and with --json the same as a document on stdout.
  void expect_failure(const Arguments& arguments, int status,
                      const std::vector<std::string>& words) {
    Arguments with_json = arguments;
    with_json.insert(with_json.begin() + 1, "--json");
    const test::Finished finished = kiln_.run(with_json);
    SCOPED_TRACE(testing::PrintToString(arguments) + " " + finished.text());
    EXPECT_EQ(finished.status, status);
    EXPECT_THAT(finished.err, testing::StartsWith("kiln: "));
    const std::string sentence = finished.err.substr(0, finished.err.find('\n'));
    for (const std::string& word : words)
      EXPECT_THAT(sentence, testing::HasSubstr(word));
    // The sentence, and at most a pointer to the help.
    EXPECT_LE(std::count(finished.err.begin(), finished.err.end(), '\n'), 2);
    const auto document = finished.json();
    ASSERT_TRUE(document.is_object() && document.contains("error"));
    EXPECT_EQ(document.size(), 1U);
    EXPECT_EQ("kiln: " + document["error"]["message"].get<std::string>(), sentence);
    EXPECT_THAT(document["error"]["code"].get<std::string>(),
                testing::Not(testing::IsEmpty()));
  }
  void expect_wrong(const Arguments& arguments, const std::vector<std::string>& words) {
    expect_failure(arguments, 2, words);
    EXPECT_THAT(kiln_.object_files(), testing::IsEmpty());
  }

  test::KilnProgram kiln_;
};

}  // namespace kiln
