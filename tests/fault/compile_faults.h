// What the tests of compilers and of workers share: a pool with a compiler that has one
// fault, and the small job that it gets.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "compile/pool/worker_pool.h"
#include "tests/support/compile_jobs.h"
#include "tests/support/fault/campaign.h"

namespace kiln::compile {

/// Generous: machines are slow, a hang is for ever.
inline constexpr std::chrono::seconds kBounded{30};

/// The fake compiler's fault is `mode`, "" for none.
inline PoolOptions options_with(const std::string& mode, unsigned max_workers = 1) {
  PoolOptions options;
  options.max_workers = max_workers;
  options.environment = {"KILN_FAKE_NVRTC=" + mode};
  return options;
}

inline CompileJob small_job() {
  return test::job_for(test::fake_nvrtc(), test::kSmallKernel);
}

inline Error error_of(const Result<CompileOutput>& output) {
  EXPECT_FALSE(output);
  return output ? Error{} : output.error();
}

/// Builds that meet one fault.
class CompileFault : public testing::Test {
 protected:
  CompileFault() { campaign_.injected(); }

  test::Campaign campaign_;
};

}  // namespace kiln::compile
