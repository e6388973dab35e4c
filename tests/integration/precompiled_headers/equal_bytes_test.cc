// A result has the same bytes with a precompiled header that another process made and
// without: images, warnings, errors. Every piece by itself, and, drawn with a fixed
// seed, several together, with other options, architectures and kinds of images.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "compile/worker/compile_log.h"
#include "tests/integration/precompiled_headers/pieces.h"
#include "tests/integration/precompiled_headers/why_none.h"
#include "tests/support/print_name.h"
#include "tests/support/service_requests.h"
#include "tests/support/test.h"
#include "util/try.h"

namespace kiln {
namespace {

using cache::Counter;
using test::Piece;

struct Build {
  std::vector<std::string> options{};
  std::string target = "sm_90";
  std::vector<std::string> names{};  // only of own pieces
  bool has_none = false;
};

/// All that changes what the compiler does with the same text.
std::vector<Build> builds() {
  return {{},
          {{"-lineinfo"}},
          {.options = {"-G"}, .has_none = true},
          {{"--use_fast_math", "--std=c++20", "-DNDEBUG"}},
          {{"-rdc=true"}},
          {{}, "sm_90a", {"scaled<float>", "scaled<int>", "&global_of_header"}},
          {{}, "compute_90"},
          {{"--maxrregcount=40", "--fmad=false"}, "sm_100"},
          {{"--std=c++20", "-dlto"}, "sm_100a"}};
}

/// For all tests of the process, since each root reads the toolkit's headers once.
class Services {
 public:
  Services() {
    fs::create_directories(own_);
    test::write_own_headers(own_);
  }

  [[nodiscard]] const fs::path& own() const { return own_; }
  [[nodiscard]] BuildService& plain() { return *plain_; }
  [[nodiscard]] BuildService& maker() { return *maker_; }
  [[nodiscard]] BuildService& user() { return *user_; }

 private:
  [[nodiscard]] std::unique_ptr<BuildService> open(const char* folder,
                                                   std::uint64_t limit) const {
    Config config = test::service_config(temp_.path() / folder);
    config.precompiled_limit_bytes = limit;
    config.jobs = 1;
    return test::open_service(config);
  }

  static constexpr std::uint64_t kLimitBytes = 1ULL << 30U;
  const test::TempDir temp_;
  const fs::path own_ = fs::canonical(temp_.path()) / "own";
  const std::unique_ptr<BuildService> plain_ = open("plain", 0);
  const std::unique_ptr<BuildService> maker_ = open("cache", kLimitBytes);
  const std::unique_ptr<BuildService> user_ = open("cache", kLimitBytes);
};

class EqualBytes : public testing::Test {
 protected:
  static void SetUpTestSuite() { services_ = std::make_unique<Services>(); }
  static void TearDownTestSuite() { services_ = nullptr; }

  void SetUp() override {
    if (const auto why = test::why_no_precompiled_headers(); !why.empty())
      GTEST_SKIP() << why;
  }

  /// One service makes a precompiled header for another source with the same headers,
  /// a second one uses it in a process of its own. Returns the error of a source that
  /// does not compile, else "".
  static std::string expect_equal(const std::vector<Piece>& pieces,
                                  const Build& build = {}) {
    SCOPED_TRACE(
        fmt::format("{} {}\n{}", build.options, build.target, test::source_of(pieces)));
    SourceOptions source;
    source.options = build.options;
    source.include_dirs = {services_->own()};
    const auto fetch = [&](BuildService& service) -> Result<Fetched> {
      const auto prepared = KILN_TRY(service.prepare(Request::from_source(source)));
      const auto target = KILN_TRY(device::parse_target(build.target));
      return service.fetch(
          std::get<KeyedRequest>(KILN_TRY(service.key(prepared, target))));
    };
    source.source = test::includes_of(pieces) + "__global__ void other() {}\n";
    source.options.emplace_back("--pch");
    std::ignore = fetch(services_->maker());  // what matters is what it has made
    source.source = test::source_of(pieces);
    source.name_expressions = build.names;
    source.file_name = "another.cu";
    const auto without = fetch(services_->plain());
    const auto before = used();
    const auto with = fetch(services_->user());
    if (!with || !without) {
      EXPECT_EQ(with ? "" : with.error().message,
                without ? "" : without.error().message);
      return without ? "" : without.error().message;
    }
    const bool has_none =
        build.has_none || std::ranges::any_of(pieces, &Piece::has_none);
    EXPECT_EQ(used() - before, has_none ? 0U : 1U)
        << test::counted(services_->maker(), Counter::kPrecompiledMade) << " made";
    EXPECT_TRUE(
        std::ranges::equal(with->object->payload(), without->object->payload()));
    EXPECT_TRUE(with->object->same_build(*without->object));
    EXPECT_EQ(compile::diagnostics(with->object->log().value()),
              compile::diagnostics(without->object->log().value()));
    return "";
  }

 private:
  static std::uint64_t used() {
    return test::counted(services_->user(), Counter::kPrecompiledUsed);
  }

  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static inline std::unique_ptr<Services> services_;
};

class PieceTest : public EqualBytes, public testing::WithParamInterface<Piece> {};

TEST_P(PieceTest, HasTheSameBytesWithAPrecompiledHeaderAndWithout) {
  EXPECT_EQ(expect_equal({GetParam()}), "");
}

const auto kName = [](const auto& info) { return info.param.name; };

INSTANTIATE_TEST_SUITE_P(Own, PieceTest, testing::ValuesIn(test::own_pieces()), kName);
INSTANTIATE_TEST_SUITE_P(Toolkit, PieceTest, testing::ValuesIn(test::toolkit_pieces()),
                         kName);

std::vector<Piece> mixable(std::span<const Piece> all) {
  std::vector<Piece> pieces;
  std::ranges::copy_if(all, std::back_inserter(pieces),
                       [](const Piece& piece) { return !piece.has_none; });
  return pieces;
}

class MixedTest : public EqualBytes, public testing::WithParamInterface<unsigned> {};

TEST_P(MixedTest, PiecesTogetherHaveTheSameBytesWithAPrecompiledHeaderAndWithout) {
  std::mt19937 random(GetParam());  // a sequence that the standard fixes
  std::vector<Piece> pieces = mixable(test::own_pieces());
  std::ranges::copy(mixable(test::toolkit_pieces()), std::back_inserter(pieces));
  for (std::size_t i = pieces.size() - 1; i > 0; --i)
    std::swap(pieces[i], pieces[random() % (i + 1)]);
  pieces.resize(2 + random() % 4);
  Build build = builds()[GetParam() % builds().size()];
  build.names = {};
  EXPECT_EQ(expect_equal(pieces, build), "");
}

INSTANTIATE_TEST_SUITE_P(Drawn, MixedTest, testing::Range(0U, 32U));

/// The same for headers that cost little, with each of the builds.
class BuildTest : public EqualBytes, public testing::WithParamInterface<std::size_t> {};

TEST_P(BuildTest, OfOwnHeadersIsTheSameWithAPrecompiledHeaderAndWithout) {
  const std::string error =
      expect_equal(mixable(test::own_pieces()), builds()[GetParam()]);
  if (error.find("JitLink") != std::string::npos)
    GTEST_SKIP() << "no nvJitLink that fits this NVRTC: " << error;
  EXPECT_EQ(error, "");
}

INSTANTIATE_TEST_SUITE_P(Own, BuildTest,
                         testing::Range(std::size_t{0}, builds().size()));

}  // namespace
}  // namespace kiln
