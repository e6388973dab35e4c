// Precompiled headers, with real NVRTC: they are made and used where they pay, change
// no byte of a result, and hide no change of a header.

#include <thread>

#include "tests/integration/precompiled_headers/fixture.h"
#include "tests/support/in_threads.h"
#include "tests/support/namespaces.h"

namespace kiln {
namespace {

TEST_F(PrecompiledHeadersTest, TheSecondSourceMakesOneAndEveryLaterProcessUsesIt) {
  fetch(0);
  EXPECT_EQ(count(Counter::kPrecompiledMade), 0U) << "one source needs none";
  expect_equal(fetch(1), source(1));
  EXPECT_EQ(count(Counter::kPrecompiledMade), 1U);
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 1U);
  for (int i = 2; i < 5; ++i) {
    start();
    expect_equal(fetch(i), source(i));
    EXPECT_EQ(count(Counter::kPrecompiledUsed), 1U) << i;
    EXPECT_EQ(count(Counter::kPrecompiledRefused), 0U) << i;
  }
  EXPECT_THAT(headers_in(root_), SizeIs(1));
  EXPECT_TRUE(fs::is_empty(root_ / "pch" / "new"));
}

/// Whether the second comes while the first is compiled or after it.
TEST_F(PrecompiledHeadersTest, OfTwoSourcesAtOnceOneMakesItForTheOther) {
  std::thread first([this] { fetch(0); });
  fetch(1);
  first.join();
  EXPECT_EQ(count(Counter::kPrecompiledMade), 1U);
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 1U);
  expect_equal(fetch(0), source(0));
  expect_equal(fetch(1), source(1));
}

TEST_F(PrecompiledHeadersTest, ForFewHeadersNoneIsKeptAndNothingIsCounted) {
  const auto few = [this](int number) {
    SourceOptions of_two = source(number);
    of_two.source = fmt::format(
        "#include \"h1.h\"\n#include \"h2.h\"\nextern \"C\" "
        "__global__ void k(int* x) {{ *x = add1({}); }}\n",
        number);
    return of_two;
  };
  std::thread first([&] { fetch(few(1)); });
  fetch(few(2));
  first.join();
  for (int i = 3; i < 6; ++i) expect_equal(fetch(few(i)), few(i));
  EXPECT_THAT(headers_in(root_), SizeIs(0));
  EXPECT_EQ(count(Counter::kPrecompiledMade), 0U);
  EXPECT_EQ(count(Counter::kPrecompiledRefused), 0U);
}

TEST_F(PrecompiledHeadersTest, AWishForOneMakesItAtOnceAndIsInNoKey) {
  SourceOptions wish = source(7);
  wish.options = {"--pch", "--pch-dir=/nowhere"};
  expect_equal(fetch(wish), source(7));
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 1U);
  EXPECT_EQ(fetch(7).outcome, FetchOutcome::kHit) << "the wish was in the key";
}

TEST_F(PrecompiledHeadersTest, OfEightServicesAtOnceEachBuildsAndAFewMakeOne) {
  fetch(0);
  std::vector<std::unique_ptr<BuildService>> services;
  for (int i = 0; i < 8; ++i) {
    Config config = test::service_config(root_);
    config.precompiled_limit_bytes = kLimitBytes;
    config.jobs = 8;
    services.push_back(test::open_service(config));
  }
  test::in_threads(8, [this, &services](int i) {
    EXPECT_TRUE(test::fetch(*services[static_cast<std::size_t>(i)],
                            Request::from_source(source(i + 1))));
  });
  std::uint64_t made = 0;
  for (const auto& service : services) {
    made += test::counted(*service, Counter::kPrecompiledMade);
    EXPECT_EQ(test::counted(*service, Counter::kCompiled), 1U);
  }
  EXPECT_EQ(made, 1U);
  EXPECT_THAT(headers_in(root_), SizeIs(1));
}

// --- what it stands for has changed ----------------------------------------------

TEST_F(PrecompiledHeadersTest, AChangedHeaderIsAMissAndItsPrecompiledOneIsNotUsed) {
  make_one();
  test::write_text(own_ / "h3.h",
                   "#pragma once\ntemplate <class T> __device__ T add3(T x) { return x "
                   "* 5; }\n");
  const Fetched changed = fetch(3);
  EXPECT_EQ(changed.outcome, FetchOutcome::kCompiled);
  expect_equal(changed, source(3));
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 1U) << "by make_one()";
}

TEST_F(PrecompiledHeadersTest,
       AHeaderThatChangesBehindTheKeyIsNotedThoughNobodyOpensIt) {
  make_one();
  const Request request = Request::from_source(source(4));
  const auto keyed = test::keyed(*service_, request);
  ASSERT_TRUE(keyed);
  test::write_text(own_ / "h5.h", "#pragma once\n");
  const auto fetched = service_->fetch(*keyed);
  ASSERT_TRUE(fetched) << fetched.error().message;
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 2U);
  ASSERT_TRUE(fetched->not_stored) << "the report of the files was lost";
  EXPECT_THAT(fetched->not_stored->message, testing::HasSubstr("h5.h"));
}

TEST_F(PrecompiledHeadersTest, OtherOptionsAndAnotherBeginningHaveTheirOwn) {
  make_one();
  SourceOptions other = source(2);
  other.defines = {"OTHER"};
  expect_equal(fetch(other), other);
  other = source(2);
  other.source = "#define OTHER 1\n" + other.source;
  expect_equal(fetch(other), other);
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 1U) << "by make_one()";
  EXPECT_EQ(count(Counter::kPrecompiledRefused), 0U);
}

TEST_F(PrecompiledHeadersTest, AnotherTextOfAHeaderInMemoryHasItsOwn) {
  for (int number = 1; number < 4; ++number) {
    SourceOptions each{
        .source =
            "#include \"mine.h\"\n#include \"all.h\"\nextern \"C\" "
            "__global__ void k(int* x) { *x = mine(); }\n",
        .headers = {{"mine.h", fmt::format("__device__ inline int mine() "
                                           "{{ return {}; }}\n",
                                           number)}},
        .include_dirs = {own_},
        .options = {"--pch"}};
    expect_equal(fetch(each), each);
    EXPECT_EQ(count(Counter::kPrecompiledUsed), static_cast<std::uint64_t>(number));
  }
  EXPECT_EQ(count(Counter::kPrecompiledMade), 3U);
}

// --- who has none ----------------------------------------------------------------

TEST_F(PrecompiledHeadersTest, TheyAreOnByDefaultAndALimitOf0TurnsThemOff) {
  start(0);
  for (int i = 0; i < 3; ++i) fetch(i);
  EXPECT_FALSE(fs::exists(root_ / "pch"));
  start(std::nullopt);
  for (int i = 3; i < 6; ++i) fetch(i);
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 2U);
}

TEST_F(PrecompiledHeadersTest, InARootThatCannotBeWrittenTheyAreNeitherMadeNorUsed) {
  make_one();
  service_ = nullptr;
  test::in_mount_namespace([&] {
    if (::mount(root_.c_str(), root_.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, root_.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY,
                nullptr) != 0)
      return 2;
    start();
    EXPECT_EQ(fetch(2).outcome, FetchOutcome::kCompiled);
    EXPECT_EQ(count(Counter::kPrecompiledUsed), 0U);
    EXPECT_EQ(count(Counter::kPrecompiledRefused), 0U);
    service_ = nullptr;
    return 0;
  });
}

TEST_F(PrecompiledHeadersTest, HeadersThatNameTheTimeHaveNone) {
  test::write_text(own_ / "h9.h",
                   "#pragma once\n__device__ const char built[] = __TIME__;\n");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(fetch(i).not_stored);
  EXPECT_EQ(count(Counter::kPrecompiledMade), 0U);
  EXPECT_EQ(count(Counter::kPrecompiledRefused), 1U);
}

TEST_F(PrecompiledHeadersTest, ASourcesOwnErrorReadsTheSameWithOne) {
  make_one();
  SourceOptions wrong = source(2);
  wrong.source += "__global__ void wrong() { nothing_is_called_so(); }\n";
  const auto with = test::fetch(*service_, Request::from_source(wrong));
  start(0);
  const auto without = test::fetch(*service_, Request::from_source(wrong));
  ASSERT_FALSE(with);
  ASSERT_FALSE(without);
  EXPECT_EQ(with.error().message, without.error().message);
}

TEST_F(PrecompiledHeadersTest, HeadersThatWarnHaveNoneSoThatNoWarningIsLost) {
  test::write_text(own_ / "h9.h", "#pragma once\n#warning \"mind this\"\n");
  for (int i = 0; i < 3; ++i) {
    SourceOptions each = source(i);
    const Fetched fetched = fetch(each);
    EXPECT_THAT(warnings(*fetched.object), testing::HasSubstr("mind this"));
  }
  EXPECT_EQ(count(Counter::kPrecompiledMade), 0U);
}

}  // namespace
}  // namespace kiln
