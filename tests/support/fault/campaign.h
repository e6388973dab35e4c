// What the fault tests share: what a right hit is, how long a campaign is, and the line
// that each of them prints.

#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "cache/cache.h"
#include "tests/support/child_process.h"
#include "tests/support/fault_length.h"
#include "tests/support/sample_object.h"

namespace kiln::test {

/// The payload of object `number`, told by the number alone: what every hit must be,
/// known without asking any cache. Some kilobytes; no two are alike.
inline std::string reference_payload(int number) {
  std::string payload = "\177ELF of " + std::to_string(number) + ": ";
  const auto size = static_cast<std::size_t>(2000 + 700 * (number % 5));
  auto state = static_cast<std::uint64_t>(number) * 2 + 1;
  while (payload.size() < size) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;  // Knuth's MMIX
    payload.push_back(static_cast<char>(state >> 56U));
  }
  return payload;
}

/// Object `number` of the reference table.
class ReferenceObject : public SampleObject {
 public:
  explicit ReferenceObject(int number)
      : SampleObject(number, reference_payload(number)) {}
};

/// Counts the faults of one test, at least one, and what was wrong after them; says so
/// at its end.
class Campaign {
 public:
  Campaign() : name_(testing::UnitTest::GetInstance()->current_test_info()->name()) {
    // A parameter that has a row's name is the row.
    if (const auto at = name_.find("/fault_"); at != std::string::npos)
      name_.erase(0, at + 1);
  }
  Campaign(const Campaign&) = delete;
  Campaign& operator=(const Campaign&) = delete;
  ~Campaign() {
    if (testing::Test::IsSkipped() && injected_ == 0)
      return;
    const bool is_over =
        !testing::Test::IsSkipped() && !testing::Test::HasFatalFailure();
    EXPECT_TRUE(injected_ > 0 || !is_over) << "no fault was injected";
    // What was expected otherwise and failed is wrong, too.
    const int wrong = wrong_ == 0 && testing::Test::HasFailure() ? 1 : wrong_;
    std::printf("%s: injected=%d wrong=%d", name_.c_str(), injected_, wrong);
    if (hits_ + misses_ > 0)
      std::printf(" hits=%d misses=%d", hits_, misses_);
    std::printf("\n");
    std::fflush(stdout);
  }

  void injected(int faults = 1) { injected_ += faults; }
  [[nodiscard]] int injected_so_far() const { return injected_; }

  /// A test failure.
  void wrong(const std::string& what) {
    ++wrong_;
    ADD_FAILURE() << what;
  }

  /// Waits for it; a test failure unless it ends with 0.
  void expect_end(ChildProcess& child) {
    if (const int code = child.wait(); code != 0)
      wrong("a child ended with " + std::to_string(code));
  }

  /// Every object below `count` is a miss or has the reference's bytes.
  void check_hits(cache::Cache& cache, int count, const std::string& after) {
    for (int number = 0; number < count; ++number) {
      const auto found = cache.find(ReferenceObject(number).key());
      if (!found) {
        ++misses_;
        continue;
      }
      ++hits_;
      if (as_text(found->payload()) != reference_payload(number))
        wrong("object " + std::to_string(number) + " has other bytes " + after);
    }
  }

 private:
  std::string name_;
  int injected_ = 0;
  int wrong_ = 0;
  int hits_ = 0;
  int misses_ = 0;
};

/// A test that is a campaign.
class CampaignTest : public testing::Test {
 protected:
  Campaign campaign_;
};

}  // namespace kiln::test
