// Named files as bytes: what has names, and what is no such list.

#include "codec/named_files.h"

#include <string>

#include "codec/fields.h"
#include "tests/support/is_error.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

TEST(NamedFiles, ComeBackInOrderWithTheirBytes) {
  const Bytes encoded =
      encode_files({{"lib/b.so", as_bytes("2"), true},
                    {"a", as_bytes(""), false},
                    {"lib-b", as_bytes(std::string_view("\0x", 2)), false}})
          .value();
  const auto files = decode_files(encoded).value();
  ASSERT_EQ(files.size(), 3U);
  EXPECT_EQ(files[0].name, "a");
  EXPECT_EQ(files[1].name, "lib-b");
  EXPECT_EQ(files[2].name, "lib/b.so");
  EXPECT_EQ(as_text(files[1].bytes), std::string_view("\0x", 2));
  EXPECT_TRUE(files[2].is_program);
  EXPECT_FALSE(files[0].is_program);
  EXPECT_TRUE(decode_files({}).value().empty());
}

TEST(NamedFiles, TakeNoNameThatLeadsOutOfTheirFolderOrIsAnotherFiles) {
  for (const std::string& name :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"),
        std::string("../a"), std::string("a/../b"), std::string("./a"),
        std::string("a\0b", 3), std::string(256, 'x'), std::string(1025, 'x')}) {
    const auto encoded = encode_files({{name, as_bytes("1"), false}});
    EXPECT_THAT(encoded, test::IsError(ErrorCode::kInvalidArgument,
                                       HasSubstr("is no name of a file")));
    Bytes forged;
    append_field(forged, "file:" + name, "1");
    EXPECT_THAT(decode_files(forged),
                test::IsError(ErrorCode::kCorrupt, HasSubstr("")));
  }
  for (const auto& [one, other] : {std::pair("a", "a"), std::pair("a", "a/b")}) {
    EXPECT_THAT(encode_files({{one, {}, false}, {"a-", {}, false}, {other, {}, true}}),
                test::IsError(ErrorCode::kInvalidArgument, HasSubstr("given twice")));
  }
}

TEST(NamedFiles, AreNothingElse) {
  Bytes unsorted;
  append_field(unsorted, "file:b", "");
  append_field(unsorted, "file:a", "");
  EXPECT_THAT(decode_files(unsorted),
              test::IsError(ErrorCode::kCorrupt, HasSubstr("order")));
  Bytes other;
  append_field(other, "link:a", "b");
  EXPECT_THAT(decode_files(other),
              test::IsError(ErrorCode::kCorrupt, HasSubstr("is no file")));
  Bytes cut = encode_files({{"a", as_bytes("123"), false}}).value();
  cut.pop_back();
  EXPECT_FALSE(decode_files(cut));
}

}  // namespace
}  // namespace kiln
