#include "remote/helper/libcurl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"

namespace kiln::remote {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A folder of the loader's path, where the names of a test are found.
class LibcurlTest : public testing::Test {
 protected:
  LibcurlTest() { ::setenv("LD_LIBRARY_PATH", folder_.path().c_str(), 1); }
  ~LibcurlTest() override { ::unsetenv("LD_LIBRARY_PATH"); }
  LibcurlTest(const LibcurlTest&) = delete;
  LibcurlTest& operator=(const LibcurlTest&) = delete;

  test::TempDir folder_;
};

TEST_F(LibcurlTest, TheMachinesOwnHasEveryFunction) {
  const auto curl = open_libcurl();
  ASSERT_TRUE(curl) << curl.error().message;
  EXPECT_NE(curl->version_info(CURLVERSION_NOW), nullptr);
}

TEST_F(LibcurlTest, WhereNoneIsTheErrorSaysWhatToInstall) {
  EXPECT_THAT(
      open_libcurl({"libkiln-no-such-curl.so.4"}),
      test::IsError(ErrorCode::kUnavailable,
                    AllOf(HasSubstr("libcurl 7.85 or later"), HasSubstr("libcurl4"))));
}

TEST_F(LibcurlTest, AFileThatIsNoLibraryIsPassedOverAndNamedIfThereIsNoOther) {
  const std::string name = "libkiln-text.so.4";
  std::ofstream(folder_.path() / name) << "text";
  EXPECT_TRUE(open_libcurl({name, "libcurl.so.4"}));
  const auto curl = open_libcurl({name});
  ASSERT_FALSE(curl);
  EXPECT_THAT(curl.error().message, HasSubstr((folder_.path() / name).native()));
}

TEST_F(LibcurlTest, ALibraryWithoutItsFunctionsIsNotUsed) {
  const auto curl = open_libcurl({"libm.so.6"});
  ASSERT_FALSE(curl);
  EXPECT_THAT(curl.error().message, AllOf(HasSubstr("libm"), HasSubstr("has no"),
                                          HasSubstr("curl_multi_poll")));
}

}  // namespace
}  // namespace kiln::remote
