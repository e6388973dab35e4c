// Files through kiln/c.h, without a driver.

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "kiln/c.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

// C++ warns of what a designated initializer leaves at zero, C does not.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace kiln {
namespace {

constexpr std::uint64_t kLimitMs = 20'000;

/// "": it succeeded; else the code and the message.
std::string error_of(kiln_result result) {
  if (result == nullptr)
    return {};
  std::string said =
      std::to_string(kiln_error_code(result)) + " " + kiln_error_message(result);
  kiln_error_free(result);
  return said;
}

class CFilesTest : public testing::Test {
 protected:
  CFilesTest() {
    const std::string cache = "cache_dir=" + (temp_.path() / "cache").native();
    const std::array settings{cache.c_str(), "driver=/no/such/driver"};
    kiln_options options = KILN_OPTIONS_INIT;
    options.settings = settings.data();
    options.setting_count = settings.size();
    EXPECT_EQ(error_of(kiln_file_cache_open(&options, &cache_)), "");
    request_.fields = fields_.data();
    request_.field_count = fields_.size();
    request_.name = "adder";
  }
  ~CFilesTest() override { kiln_file_cache_close(cache_); }

  /// Frees `files`.
  static std::string text_of(kiln_files* files, const char* name) {
    const std::filesystem::path folder = kiln_files_folder(files);
    std::string text;
    std::getline(std::ifstream(folder / name), text, '\0');
    kiln_files_free(files);
    return text;
  }
  [[nodiscard]] kiln_files* find() {
    kiln_files* files = nullptr;
    EXPECT_EQ(error_of(kiln_file_cache_get(cache_, &request_, nullptr, &files)), "");
    return files;
  }

  const test::TempDir temp_;
  kiln_file_cache* cache_ = nullptr;
  std::array<kiln_named_bytes, 2> fields_{
      {{.name = "source", .bytes = "a\0b", .size = 3}, {.name = "empty"}}};
  kiln_file_request request_ = KILN_FILE_REQUEST_INIT;
};

TEST_F(CFilesTest, ArePutAndFound) {
  EXPECT_EQ(find(), nullptr);
  const std::array stored{kiln_named_bytes{.name = "d/a", .bytes = "1", .size = 1},
                          kiln_named_bytes{.name = "b", .is_program = true}};
  kiln_files* put = nullptr;
  ASSERT_EQ(error_of(kiln_file_cache_put(cache_, &request_, stored.data(),
                                         stored.size(), &put)),
            "");
  EXPECT_EQ(kiln_files_count(put), 2U);
  EXPECT_STREQ(kiln_files_name(put, 0), "b");
  EXPECT_EQ(kiln_files_name(put, 2), nullptr);
  EXPECT_EQ(kiln_files_outcome(put), KILN_EVENT_COMPILED);
  EXPECT_STREQ(kiln_files_not_stored(put), "");
  EXPECT_EQ(std::string(kiln_files_key(put)).size(), 64U);
  EXPECT_EQ(text_of(put, "d/a"), "1");
  kiln_files* const found = find();
  EXPECT_EQ(kiln_files_outcome(found), KILN_EVENT_HIT);
  EXPECT_EQ(text_of(found, "d/a"), "1");
  fields_[0].size = 2;
  EXPECT_EQ(find(), nullptr);
}

TEST_F(CFilesTest, AreBuiltOnceByACallback) {
  int calls = 0;
  const auto build = [](void* user, kiln_file_build* turn) -> kiln_result {
    ++*static_cast<int*>(user);
    const std::array command{"sh", "-c", "echo $WORD | tee a; exit 3",
                             static_cast<const char*>(nullptr)};
    const std::array environment{"PATH=/usr/bin:/bin", "WORD=said",
                                 static_cast<const char*>(nullptr)};
    int status = 0;
    char* output = nullptr;
    const char* folder = nullptr;
    EXPECT_EQ(error_of(kiln_file_build_folder(turn, &folder)), "");
    kiln_result failed = kiln_file_build_run(turn, command.data(), environment.data(),
                                             nullptr, &status, nullptr, &output);
    EXPECT_STREQ(output, "said\n");
    EXPECT_EQ(status, 3);
    kiln_text_free(output);
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(folder) / "a"));
    return failed;
  };
  for (int i = 0; i < 2; ++i) {
    kiln_files* files = nullptr;
    ASSERT_EQ(error_of(kiln_file_cache_build_once(cache_, &request_, kLimitMs, build,
                                                  &calls, nullptr, &files)),
              "");
    EXPECT_EQ(text_of(files, "a"), "said\n");
  }
  EXPECT_EQ(calls, 1);
}

TEST_F(CFilesTest, FailAsTheirCallbackSays) {
  const auto build = [](void* /*user*/, kiln_file_build* /*turn*/) {
    return kiln_error_new(KILN_COMPILE_FAILED, "no such register");
  };
  kiln_files* files = nullptr;
  EXPECT_EQ(error_of(kiln_file_cache_build_once(cache_, &request_, kLimitMs, build,
                                                nullptr, nullptr, &files)),
            "3 no such register");
  EXPECT_EQ(files, nullptr);
}

TEST_F(CFilesTest, AreBuiltByTheHolderOfATurn) {
  kiln_files* files = nullptr;
  kiln_file_build* turn = nullptr;
  const auto begin = [&] {
    return error_of(
        kiln_file_cache_begin(cache_, &request_, kLimitMs, nullptr, &files, &turn));
  };
  ASSERT_EQ(begin(), "");
  ASSERT_NE(turn, nullptr);
  kiln_file_build_free(turn);  // another's turn
  ASSERT_EQ(begin(), "");
  ASSERT_NE(turn, nullptr);
  EXPECT_EQ(error_of(kiln_file_build_fail(turn, KILN_TIMEOUT, "late")), "");
  kiln_file_build_free(turn);
  ASSERT_EQ(begin(), "");
  const std::array inputs{"/etc/hostname", static_cast<const char*>(nullptr)};
  EXPECT_EQ(error_of(kiln_file_build_add_inputs(turn, inputs.data(), nullptr)), "");
  request_.name = "renamed";
  EXPECT_EQ(error_of(kiln_file_build_describe(turn, &request_)), "");
  const kiln_named_bytes stored{.name = "a", .bytes = "1", .size = 1};
  ASSERT_EQ(error_of(kiln_file_build_commit(turn, &stored, 1, &files)), "");
  kiln_file_build_free(turn);
  EXPECT_EQ(text_of(files, "a"), "1");
  ASSERT_EQ(begin(), "");
  EXPECT_EQ(turn, nullptr);
  EXPECT_EQ(text_of(files, "a"), "1");
}

TEST_F(CFilesTest, AreRefusedWithTheNameOfWhatIsWrong) {
  kiln_files* files = nullptr;
  const auto put = [&](const kiln_named_bytes* stored, std::size_t count) {
    return error_of(kiln_file_cache_put(cache_, &request_, stored, count, &files));
  };
  const kiln_named_bytes outside{.name = "../a"};
  const kiln_named_bytes nameless{.name = nullptr};
  const kiln_named_bytes without_bytes{.name = "a", .size = 1};
  EXPECT_THAT(put(&outside, 1), HasSubstr("'../a'"));
  EXPECT_THAT(put(&nameless, 1), HasSubstr("a name in the files is NULL"));
  EXPECT_THAT(put(&without_bytes, 1), HasSubstr("'a' of the files is NULL"));
  EXPECT_THAT(put(nullptr, 1), HasSubstr("the files is NULL"));
  fields_[1].name = "source";
  EXPECT_THAT(put(&outside, 1), HasSubstr("'source' is given twice"));
  EXPECT_THAT(error_of(kiln_file_cache_get(nullptr, &request_, nullptr, &files)),
              HasSubstr("handle is NULL"));
  request_.struct_size = 1000;
  EXPECT_THAT(error_of(kiln_file_cache_get(cache_, &request_, nullptr, &files)),
              HasSubstr("request.struct_size"));
  EXPECT_THAT(error_of(kiln_error_new(99, nullptr)), StartsWith("1 "));
  EXPECT_STREQ(kiln_files_folder(nullptr), "");
  kiln_files_free(nullptr);
  kiln_file_build_free(nullptr);
  kiln_file_cache_close(nullptr);
}

}  // namespace
}  // namespace kiln
