// What the section `source` keeps, and that nobody is shown a text that is not that of
// the key.

#include "build/stored_source.h"

#include <string>
#include <vector>

#include "codec/named_files.h"
#include "tests/support/sample_object.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using Headers = std::vector<compile::MemoryHeader>;

constexpr std::string_view kSource = "#include \"x.h\"\n";

std::string digest(std::string_view text) {
  return Digest::of(as_bytes(text)).hex();
}

cache::StoredObject stored(std::string_view section,
                           cache::Kind kind = cache::Kind::kCubin) {
  test::SampleObject sample(1);
  sample->kind = kind;
  sample->source = section;
  return cache::StoredObject::make(*sample).value();
}

Fields preimage_of(const Headers& headers) {
  Fields fields;
  for (const auto& [name, text] : headers)
    fields.add("memory_header/" + name, digest(text));
  return fields;
}

TEST(StoredSource, IsTheSourceBeforeItsHeaders) {
  const auto object = stored(
      with_headers(std::string(kSource), {{"x.h", "int x;\n"}, {"y.h", "int y;\n"}}));
  EXPECT_EQ(source_of(object).value(), kSource);
  const key::Texts texts = texts_of(object);
  EXPECT_THAT(texts, SizeIs(3));
  EXPECT_EQ(texts.at(digest(kSource)), kSource);
  EXPECT_EQ(texts.at(digest("int y;\n")), "int y;\n");
}

TEST(StoredSource, WithoutHeadersIsAsOlderVersionsWriteIt) {
  EXPECT_EQ(with_headers(std::string(kSource), {}), kSource);
  const auto object = stored(kSource);
  EXPECT_EQ(source_of(object).value(), kSource);
  EXPECT_THAT(texts_of(object), SizeIs(1));
  EXPECT_EQ(source_of(stored("")).value(), "");
}

TEST(StoredSource, KeepsAllHeadersOrNone) {
  const std::string most(kMostHeaderBytes - 1, 'a');
  const std::string source(kSource);
  EXPECT_THAT(texts_of(stored(with_headers(source, {{"x.h", most}, {"y.h", "b"}}))),
              SizeIs(3));
  EXPECT_EQ(with_headers(source, {{"x.h", most}, {"y.h", "bc"}}), source);
  EXPECT_EQ(with_headers(source, {{"x.h", most + most}}), source);
}

TEST(StoredSource, ADamagedTailIsNoHeader) {
  const std::string whole = with_headers(std::string(kSource), {{"x.h", "int x;\n"}});
  for (std::size_t size = kSource.size() + 1; size < whole.size(); ++size) {
    const auto object = stored(std::string_view(whole).substr(0, size));
    EXPECT_EQ(source_of(object).value(), kSource) << size;
    EXPECT_THAT(texts_of(object), SizeIs(1)) << size;
  }
}

TEST(StoredSource, ATextThatIsNotThatOfTheKeyIsShownNowhere) {
  const Headers a{{"x.h", "one\ntwo\n"}};
  const Headers b{{"x.h", "one\n2\n"}};
  const Headers lie{{"x.h", "one\nlie\n"}};
  const auto between = [&](const Headers& stored_a, const Headers& stored_b) {
    key::Texts texts = texts_of(stored(with_headers("s", stored_a)));
    texts.merge(texts_of(stored(with_headers("s", stored_b))));
    return key::differences(preimage_of(a), preimage_of(b), texts);
  };
  const auto honest = between(a, b);
  ASSERT_THAT(honest, SizeIs(1));
  EXPECT_THAT(honest[0].a, HasSubstr(", line 2: two"));
  EXPECT_THAT(honest[0].b, HasSubstr(", line 2: 2"));
  const key::FieldDifference digests{"memory_header/x.h", digest(a[0].text),
                                     digest(b[0].text)};
  for (const auto& found : {between(lie, b), between(a, lie), between(a, {})})
    EXPECT_THAT(found, testing::ElementsAre(digests));
}

TEST(StoredSource, OfFilesIsWhatItWas) {
  const std::string files(as_text(encode_files({{"a.c", as_bytes("int a;")}}).value()));
  const auto object = stored(files, cache::Kind::kFiles);
  EXPECT_EQ(source_of(object).value(), files);
  EXPECT_THAT(texts_of(object), SizeIs(0));
}

}  // namespace
}  // namespace kiln
