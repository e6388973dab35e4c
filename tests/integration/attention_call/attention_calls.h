// The fixture of the tests of attention calls: a service on simulated devices, a
// problem with its tensors on one of them, and what was logged.

#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "kiln/ops/attention.h"
#include "library/service_parts.h"
#include "tests/integration/library/library_service.h"
#include "tests/support/attention_problem.h"
#include "tests/support/test.h"
#include "tests/unit/device/loading.h"
#include "util/log.h"

namespace kiln {

inline attention::Problem small_problem(
    attention::Pass pass = attention::Pass::kForward, std::int64_t dqk = 64,
    std::int64_t dv = 64) {
  const auto forward = test::attention_problem([&](attention::Problem& problem) {
    problem.dtype = ops::DType::kF16;
    problem.batch = 1;
    problem.kv_heads = 2;
    problem.dqk = dqk;
    problem.dv = dv;
    problem.mask = attention::Mask::kCausal;
  });
  return pass == attention::Pass::kForward ? forward : test::backward_of(forward);
}

/// "done", or why not.
inline std::string why(const Result<void>& result) {
  return result ? "done" : result.error().message;
}

/// Without a cuDNN, unless a test says otherwise.
class AttentionCallTest : public test::LibraryTest {
 protected:
  explicit AttentionCallTest(const std::string& devices = "7.5,8.6")
      : driver_(devices) {}

  void SetUp() override {
    set("KILN_CUDNN", "/nowhere/libcudnn.so.9");
    log_to([this](LogLevel level, const std::string& line) {
      const std::lock_guard lock(log_mutex_);
      log_ << (level == LogLevel::kWarning ? "warning " : "info ") << line << '\n';
    });
    ASSERT_TRUE(set_log_level("info"));
    // As of whoever has made a stream; which one does not matter.
    test::make_current(driver_, context(0));
  }
  void TearDown() override {
    service_.reset();
    log_to({});
    std::ignore = set_log_level("warning");
    for (const auto& [variable, before] : changed_) {
      if (before)
        ::setenv(variable.c_str(), before->c_str(), 1);  // NOLINT
      else
        ::unsetenv(variable.c_str());  // NOLINT
    }
  }

  void set(const std::string& variable, const std::string& value) {
    const char* const before = std::getenv(variable.c_str());  // NOLINT
    changed_.emplace(variable, before == nullptr ? std::nullopt
                                                 : std::optional<std::string>(before));
    ::setenv(variable.c_str(), value.c_str(), 1);  // NOLINT
  }

  [[nodiscard]] Service& service() {
    if (!service_)
      service_ = open(driver_);
    return *service_;
  }
  /// The next call of service() opens another one.
  void close() { service_.reset(); }
  [[nodiscard]] const Device& device(std::size_t i) {
    return service().devices().at(i);
  }

  [[nodiscard]] CUcontext context(std::size_t i) {
    while (contexts_.size() <= i)
      contexts_.push_back(test::context_of(driver_, contexts_.size()));
    return contexts_[i]->handle();
  }
  [[nodiscard]] CUstream stream(std::size_t i) {
    while (streams_.size() <= i)
      streams_.push_back(test::stream_of(driver_, context(streams_.size())));
    return streams_[i];
  }

  [[nodiscard]] void* memory(std::size_t i, std::size_t bytes) {
    const CUcontext before = test::current_context(driver_);
    test::make_current(driver_, context(i));
    CUdeviceptr pointer = 0;
    EXPECT_EQ(driver_.find<decltype(::cuMemAlloc)>("cuMemAlloc_v2")(&pointer, bytes),
              CUDA_SUCCESS);
    test::make_current(driver_, before);
    return reinterpret_cast<void*>(pointer);  // NOLINT(performance-no-int-to-ptr)
  }

  /// All that a call of the problem takes, and the gradients.
  [[nodiscard]] ops::AttentionTensors tensors(std::size_t i,
                                              const attention::Problem& p,
                                              std::uint64_t workspace_bytes = 0) {
    const auto of = [&](std::int64_t heads, std::int64_t rows, std::int64_t dim) {
      constexpr std::int64_t kMostBytes = 4;
      return memory(
          i, static_cast<std::size_t>(p.batch * heads * rows * dim * kMostBytes));
    };
    const auto number = [&] {
      return p.dropout > 0 ? static_cast<std::int64_t*>(memory(i, 64)) : nullptr;
    };
    const bool has_stats = p.stats || p.training;
    return {.q = of(p.heads, p.sq, p.dqk),
            .k = of(p.kv_heads, p.skv, p.dqk),
            .v = of(p.kv_heads, p.skv, p.dv),
            .o = of(p.heads, p.sq, p.dv),
            .stats = has_stats ? static_cast<float*>(of(p.heads, p.sq, 1)) : nullptr,
            .dropout_seed = number(),
            .dropout_offset = number(),
            .grad_o = of(p.heads, p.sq, p.dv),
            .grad_q = of(p.heads, p.sq, p.dqk),
            .grad_k = of(p.kv_heads, p.skv, p.dqk),
            .grad_v = of(p.kv_heads, p.skv, p.dv),
            .workspace = workspace_bytes > 0 ? memory(i, workspace_bytes) : nullptr,
            .workspace_bytes = workspace_bytes};
  }

  /// With as large a workspace as prepare() says.
  Result<void> call(std::size_t i, const attention::Problem& problem) {
    const auto choice = test::prepare(service(), device(i), problem);
    if (!choice)
      return tl::unexpected(choice.error());
    return call_unprepared(i, problem, choice->workspace_bytes);
  }
  Result<void> call_unprepared(std::size_t i, const attention::Problem& problem,
                               std::uint64_t workspace_bytes = 0) {
    return run(i, problem, tensors(i, problem, workspace_bytes));
  }
  /// A call in a capture, which must be whole in the end.
  Result<void> call_captured(std::size_t i, const attention::Problem& problem,
                             std::uint64_t workspace_bytes = 0) {
    // Nothing can be allocated there.
    const ops::AttentionTensors with = tensors(i, problem, workspace_bytes);
    EXPECT_EQ(begin_capture(i), CUDA_SUCCESS);
    auto result = run(i, problem, with);
    EXPECT_EQ(end_capture(i), CUDA_SUCCESS) << "the capture was disturbed";
    return result;
  }
  Result<void> run(std::size_t i, const attention::Problem& problem,
                   const ops::AttentionTensors& with) {
    return test::call(service(), device(i), stream(i), problem, with);
  }

  [[nodiscard]] ops::AttentionChoice choice(std::size_t i,
                                            const attention::Problem& problem) {
    auto made = test::prepare(service(), device(i), problem);
    EXPECT_TRUE(made) << made.error().message;
    return made ? *std::move(made) : ops::AttentionChoice{};
  }

  /// Those of a level since the last call of take_log().
  [[nodiscard]] std::vector<std::string> lines(const std::string& level) const {
    std::vector<std::string> found;
    std::istringstream text(log_.str());
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with(level + " "))
        found.push_back(line);
    }
    return found;
  }

  /// Of these, those that say which kernel runs a problem, and not what was built.
  [[nodiscard]] std::vector<std::string> choices(const std::string& level) const {
    auto found = lines(level);
    std::erase_if(found, [&](const std::string& line) {
      return !line.starts_with(level + " attention ");
    });
    return found;
  }

  [[nodiscard]] CUresult begin_capture(std::size_t i) {
    return begin_capture(stream(i));
  }
  [[nodiscard]] CUresult end_capture(std::size_t i) { return end_capture(stream(i)); }
  [[nodiscard]] CUresult begin_capture(CUstream where) const {
    return driver_.find<decltype(::cuStreamBeginCapture)>("cuStreamBeginCapture_v2")(
        where, CU_STREAM_CAPTURE_MODE_GLOBAL);
  }
  [[nodiscard]] CUresult end_capture(CUstream where) const {
    CUgraph graph = nullptr;
    return driver_.find<decltype(::cuStreamEndCapture)>("cuStreamEndCapture")(where,
                                                                              &graph);
  }

  /// The entry points launched so far.
  [[nodiscard]] std::vector<std::string> launched() const {
    std::vector<std::string> names;
    for (const auto& launch : driver_.launches()) names.emplace_back(launch.function);
    return names;
  }

  const test::SimulatedDriver driver_;

 private:
  std::mutex log_mutex_;
  std::ostringstream log_;
  std::map<std::string, std::optional<std::string>> changed_;
  std::vector<std::shared_ptr<const device::PrimaryContext>> contexts_;
  std::vector<CUstream> streams_;
  std::optional<Service> service_;
};

}  // namespace kiln
