// A root with precompiled headers, and sources that begin with the same 120 headers of
// their own.

#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/worker/compile_log.h"
#include "tests/integration/precompiled_headers/why_none.h"
#include "tests/support/service_requests.h"
#include "tests/support/template_family.h"
#include "tests/support/test.h"

namespace kiln {

using cache::Counter;

inline constexpr std::uint64_t kLimitBytes = 2ULL << 30U;
inline constexpr int kHeaders = 120;  // more than precompiled_headers.cc asks for

/// Those that are published.
inline std::vector<fs::path> headers_in(const fs::path& root) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root / "pch", error)) {
    if (fs::exists(entry.path() / "headers"))
      found.push_back(entry.path() / "headers");
  }
  return found;
}

inline std::string warnings(const cache::StoredObject& object) {
  return compile::diagnostics(object.log().value());
}

class PrecompiledHeadersTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = test::why_no_precompiled_headers(); !why.empty())
      GTEST_SKIP() << why;
    fs::create_directories(own_);
    std::string all;
    for (int i = 0; i < kHeaders; ++i) {
      test::write_text(own_ / fmt::format("h{}.h", i),
                       fmt::format("#pragma once\ntemplate <class T> __device__ inline "
                                   "T add{0}(T x) {{ return x + {0}; }}\n",
                                   i));
      all += fmt::format("#include \"h{}.h\"\n", i);
    }
    test::write_text(own_ / "all.h", all);
    start();
  }

  /// As a new process would.
  void start(std::optional<std::uint64_t> limit = kLimitBytes) {
    Config config = test::service_config(root_);
    config.precompiled_limit_bytes = limit;
    service_ = nullptr;
    service_ = test::open_service(config);
  }

  [[nodiscard]] SourceOptions source(int number) const {
    return {.source = fmt::format("#include \"all.h\"\nextern \"C\" __global__ void "
                                  "k(int* x) {{ *x = add{0}(*x) + {0}; }}\n",
                                  number),
            .include_dirs = {own_}};
  }
  Fetched fetch(const SourceOptions& source) {
    auto fetched = test::fetch(*service_, Request::from_source(source));
    EXPECT_TRUE(fetched) << fetched.error().message;
    return fetched ? *std::move(fetched) : Fetched{};
  }
  Fetched fetch(int number) { return fetch(source(number)); }
  [[nodiscard]] std::uint64_t count(Counter counter) const {
    return test::counted(*service_, counter);
  }

  /// The image without precompiled headers, from a cache of its own.
  [[nodiscard]] std::shared_ptr<const cache::StoredObject> plain(
      const SourceOptions& source) const {
    Config config = test::service_config(temp_.path() / "plain");
    config.precompiled_limit_bytes = 0;
    const auto service = test::open_service(config);
    const auto fetched = test::fetch(*service, Request::from_source(source));
    EXPECT_TRUE(fetched) << fetched.error().message;
    return fetched ? fetched->object : nullptr;
  }
  void expect_equal(const Fetched& fetched, const SourceOptions& source) const {
    const auto other = plain(source);
    ASSERT_NE(fetched.object, nullptr);
    ASSERT_NE(other, nullptr);
    EXPECT_TRUE(std::ranges::equal(fetched.object->payload(), other->payload()));
    EXPECT_TRUE(fetched.object->same_build(*other));
    EXPECT_EQ(warnings(*fetched.object), warnings(*other));
  }

  /// The one that two sources have made.
  fs::path make_one() {
    fetch(0);
    fetch(1);
    const auto made = headers_in(root_);
    EXPECT_THAT(made, testing::SizeIs(1));
    return made.empty() ? fs::path() : made.front();
  }

  const test::TempDir temp_;
  const fs::path own_ = fs::canonical(temp_.path()) / "own";
  const fs::path root_ = temp_.path() / "cache";
  std::unique_ptr<BuildService> service_;
};

}  // namespace kiln
