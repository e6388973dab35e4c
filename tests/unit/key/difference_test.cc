// What `kiln why` says about two preimages.

#include "key/difference.h"

#include <initializer_list>
#include <string>
#include <string_view>

#include "codec/digest.h"
#include "tests/support/test.h"

namespace kiln::key {
namespace {

Fields make(std::initializer_list<Field> list) {
  Fields fields;
  for (const Field& field : list) fields.add(field.label, field.value);
  return fields;
}

TEST(Difference, OfEqualPreimagesIsEmpty) {
  const Fields a = make({{"schema", "1"}, {"option", "x"}});
  EXPECT_THAT(differences(a, a), IsEmpty());
}

TEST(Difference, ComesInPreimageOrder) {
  const Fields a = make({{"kind", "cubin"}, {"target", "sm_90"}, {"toolchain", "x"}});
  const Fields b = make(
      {{"kind", "ptx"}, {"target", "sm_90"}, {"option", "-G"}, {"toolchain", "y"}});
  EXPECT_THAT(differences(a, b), ElementsAre(FieldDifference{"kind", "cubin", "ptx"},
                                             FieldDifference{"option", "", "-G"},
                                             FieldDifference{"toolchain", "x", "y"}));
}

TEST(Difference, OfListsLeavesOutWhatIsEqualBeforeAndBehind) {
  const Fields a = make({{"option", "x"}, {"option", "z"}});
  const Fields b = make({{"option", "x"}, {"option", "y"}, {"option", "z"}});
  EXPECT_THAT(differences(a, b), ElementsAre(FieldDifference{"option", "", "y"}));
}

TEST(Difference, MatchesHeadersByName) {
  const Fields a = make({{"header/a.h", "1"},
                         {"header/b.h", "not found"},
                         {"include_graph", "0: 1 -\n"}});
  const Fields b =
      make({{"header/b.h", "2"}, {"header/a.h", "1"}, {"include_graph", "0: 2 1\n"}});
  EXPECT_THAT(differences(a, b),
              ElementsAre(FieldDifference{"header/b.h", "not found", "2"}));
}

TEST(Difference, TellsOfTheGraphWhereNothingElseDiffers) {
  const Fields a = make({{"header/a.h", "1"}, {"include_graph", "0: 1 -\n"}});
  const Fields b = make({{"header/a.h", "1"}, {"include_graph", "0: - 1\n"}});
  const auto found = differences(a, b);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].field, "include_graph");
}

TEST(Difference, OfLongTextsShowsTheFirstLineThatDiffers) {
  const Fields a = make({{"source", "one\ntwo\nthree\n"}});
  const Fields b = make({{"source", "one\ntwo and\nthree\n"}});
  const auto found = differences(a, b);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].a, testing::MatchesRegex("sha256 [0-9a-f]{16}, line 2: two"));
  EXPECT_THAT(found[0].b,
              testing::MatchesRegex("sha256 [0-9a-f]{16}, line 2: two and"));
  const auto longer =
      differences(make({{"source", "one\n"}}), make({{"source", "one\ntwo\n"}}));
  EXPECT_THAT(longer[0].a, HasSubstr("line 2: "));
  EXPECT_THAT(longer[0].b, HasSubstr("line 2: two"));
}

TEST(Difference, FarBehindInALineIsShownWithThePartBeforeIt) {
  const std::string before = "one\n" + std::string(300, 'x');
  const auto found = differences(make({{"source", before + "a"}}),
                                 make({{"source", before + "b\nmore"}}));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].a, EndsWith(", line 2: …" + std::string(40, 'x') + "a"));
  EXPECT_THAT(found[0].b, EndsWith(", line 2: …" + std::string(40, 'x') + "b"));
}

TEST(Difference, SendsNoCommandsToATerminal) {
  const auto found =
      differences(make({{"source", "a\x1b[2J\tb\x7f\n"}}), make({{"source", "\r\n"}}));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].a, EndsWith(", line 1: a?[2J b?"));
  EXPECT_THAT(found[0].b, EndsWith(", line 1: ?"));
}

TEST(Difference, OfALongLineShowsItsBeginning) {
  const std::string short_enough(200, 'x');
  const std::string too_long(201, 'y');
  const auto whole =
      differences(make({{"option", short_enough}}), make({{"option", "z"}}));
  EXPECT_THAT(whole, ElementsAre(FieldDifference{"option", short_enough, "z"}));
  const auto cut = differences(make({{"option", too_long}}), make({{"option", "z"}}));
  ASSERT_EQ(cut.size(), 1U);
  EXPECT_THAT(cut[0].a, EndsWith(", line 1: " + std::string(120, 'y') + "…"));
  EXPECT_THAT(cut[0].b, EndsWith(", line 1: z"));
}

TEST(Difference, OfTheSourceIsWhyTheGraphDiffers) {
  const Fields a = make({{"source", "1"}, {"include_graph", "0: 1\n"}});
  const Fields b = make({{"source", "2"}, {"include_graph", "0: 2\n"}});
  EXPECT_THAT(differences(a, b), ElementsAre(FieldDifference{"source", "1", "2"}));
}

TEST(Difference, OfDigestsShowsLinesWhereBothTextsAreKnown) {
  const auto digest = [](std::string_view text) {
    return Digest::of(as_bytes(text)).hex();
  };
  const Fields a = make({{"source_sha256", digest("one\ntwo")},
                         {"memory_header/a.h", digest("x")},
                         {"include_graph", "0: 1\n"}});
  const Fields b = make({{"source_sha256", digest("one\n2")},
                         {"memory_header/a.h", digest("y")},
                         {"include_graph", "0: 2\n"}});
  Texts texts{{digest("one\ntwo"), "one\ntwo"}, {digest("x"), "x"}};
  EXPECT_THAT(
      differences(a, b, texts),
      ElementsAre(
          FieldDifference{"source_sha256", digest("one\ntwo"), digest("one\n2")},
          FieldDifference{"memory_header/a.h", digest("x"), digest("y")}));
  texts.emplace(digest("one\n2"), "one\n2");
  texts.emplace(digest("y"), "y");
  const auto found = differences(a, b, texts);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].a, "sha256 " + digest("one\ntwo").substr(0, 16) + ", line 2: two");
  EXPECT_THAT(found[0].b, EndsWith(", line 2: 2"));
  EXPECT_THAT(found[1].a, EndsWith(", line 1: x"));
  // A header of one side alone has no line of the other.
  const auto alone =
      differences(a, make({{"source_sha256", digest("one\ntwo")}}), texts);
  EXPECT_EQ(alone[0], (FieldDifference{"memory_header/a.h", digest("x"), ""}));
}

TEST(Difference, OfAListThatOneHasMoreOfIsItsRest) {
  const Fields a = make({{"option", "x"}});
  const Fields b = make({{"option", "x"}, {"option", "y"}, {"option", "z"}});
  EXPECT_THAT(differences(b, a), ElementsAre(FieldDifference{"option", "y", ""},
                                             FieldDifference{"option", "z", ""}));
}

TEST(Difference, IsNeverEmptyForUnequalPreimages) {
  const Fields a = make({{"x", "1"}, {"y", "2"}});
  const Fields b = make({{"y", "2"}, {"x", "1"}});
  EXPECT_FALSE(differences(a, b).empty());
  EXPECT_FALSE(differences(make({{"x", ""}}), make({})).empty());
}

TEST(NearestPreimage, PrefersTheSameKernelThenTheSameTarget) {
  const Fields wanted = make({{"target", "sm_90"},
                              {"kernel", "f"},
                              {"parameter/a", "1"},
                              {"parameter/b", "2"},
                              {"toolchain/nvrtc", "x"}});
  const std::vector<Fields> candidates = {
      make({{"target", "sm_90"},
            {"kernel", "g"},
            {"parameter/a", "1"},
            {"parameter/b", "2"},
            {"toolchain/nvrtc", "x"}}),
      make({{"target", "sm_80"},
            {"kernel", "f"},
            {"parameter/a", "1"},
            {"parameter/b", "2"},
            {"toolchain/nvrtc", "x"}}),
      make({{"target", "sm_90"},
            {"kernel", "f"},
            {"parameter/a", "9"},
            {"parameter/b", "9"},
            {"toolchain/nvrtc", "y"}}),
      make({{"target", "sm_90"},
            {"kernel", "f"},
            {"parameter/a", "1"},
            {"parameter/b", "9"},
            {"toolchain/nvrtc", "x"}}),
  };
  const auto nearest = nearest_preimage(wanted, candidates);
  ASSERT_TRUE(nearest);
  EXPECT_EQ(*nearest, 3U);
  EXPECT_THAT(differences(wanted, candidates[*nearest]),
              ElementsAre(FieldDifference{"parameter/b", "2", "9"}));
  EXPECT_EQ(nearest_preimage(wanted, std::span(candidates).first(3)), 2U);
  EXPECT_EQ(nearest_preimage(wanted, std::span(candidates).first(2)), 1U);
  EXPECT_FALSE(nearest_preimage(wanted, {}));
}

}  // namespace
}  // namespace kiln::key
