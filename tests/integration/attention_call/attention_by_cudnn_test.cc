// Attention calls with cuDNN: plans of the real one, loaded and run by the simulated
// one.

#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cudnn/plan_service.h"
#include "device/profile.h"
#include "tests/integration/attention_call/attention_calls.h"
#include "tests/support/is_error.h"
#include "tests/support/service_requests.h"
#include "tests/support/simulated_cudnn.h"
#include "tests/support/value_of.h"
#include "tools/bench/cases.h"

namespace kiln {
namespace {

using attention::Pass;
using attention::TensorRole;
using ops::AttentionBackend;

/// Device 0 is a 9.0, device 1 an 8.0, device 2 a 10.0.
class AttentionByCudnn : public AttentionCallTest {
 protected:
  AttentionByCudnn() : AttentionCallTest("9.0,8.0,10.0") {}

  void SetUp() override {
    const auto real = test::real_cudnn();
    if (real.empty())
      GTEST_SKIP() << "no libcudnn.so.9";
    cudnn_ = std::make_unique<test::SimulatedCudnn>(driver_);
    AttentionCallTest::SetUp();
    set("KILN_CUDNN", real);
    ServiceParts::attention_of(service()).load_plans_with(cudnn_->path());
  }

  /// The rules for that version decide: nobody builds for it.
  void pretend(const attention::CudnnVersion& version) {
    cudnn_->set_version(version);
    set("KILN_CUDNN", cudnn_->path());
    reopen();
  }
  void reopen() {
    close();
    ServiceParts::attention_of(service()).load_plans_with(cudnn_->path());
  }

  /// From now on the simulated cuDNN is what builds plans, too, in a plan worker where
  /// it finds that driver.
  /// `more`: of its environment.
  void build_plans_with(const std::filesystem::path& driver,
                        const std::string& more = "") {
    const auto workers = temp_.path() / "workers";
    const auto built = std::filesystem::path(test::paths::kPlanWorker).parent_path();
    std::filesystem::create_directory(workers);
    std::filesystem::create_symlink(built / "kiln-worker", workers / "kiln-worker");
    std::ofstream(workers / "kiln-plan-worker") << fmt::format(
        "#!/bin/sh\n"
        "export KILN_DRIVER={} KILN_SIMULATED_CUDNN_REAL={} {}\n"
        "exec {} \"$@\"\n",
        driver.native(), test::real_cudnn().native(), more, test::paths::kPlanWorker);
    std::filesystem::permissions(workers / "kiln-plan-worker",
                                 std::filesystem::perms::owner_all);
    set("KILN_WORKER", workers / "kiln-worker");
    set("KILN_CUDNN", cudnn_->path());
    reopen();
  }

  /// What is said of cuDNN's own answer to one of the passes.
  [[nodiscard]] nlohmann::json explained(std::size_t i,
                                         const attention::Problem& problem) {
    const auto text = ops::explain_attention(service(), device(i), problem, {});
    EXPECT_TRUE(text) << text.error().message;
    const bool is_forward = problem.pass == Pass::kForward;
    return text ? nlohmann::json::parse(*text)[is_forward ? "forward" : "backward"]
                : nlohmann::json();
  }

  /// Puts the real cuDNN's plan of `problem` on device 0 into the cache, as built by
  /// `cudnn`, whose version may be another one.
  void publish_plan(const attention::Problem& problem,
                    const test::SimulatedCudnn& cudnn) {
    Config config = test::service_config(temp_.path() / "cache");
    config.cudnn = cudnn.path();
    const auto builds = test::open_service(config);
    PlanService plans(*builds);
    const std::string json = service().profile(device(0)).value();
    const auto plan =
        test::value_of(test::sample_plan(problem, json, device(0).capability));
    const auto keyed = test::value_of(
        plans.key(problem, device::parse_device_properties(json).value()));
    cache::Metadata metadata;
    metadata.template_name = PlanService::name_of(problem);
    for (const attention::PlanKernel& kernel : plan.kernels)
      metadata.entry_points.push_back({kernel.name, kernel.name});
    const auto object = test::value_of(
        cache::StoredObject::make({.kind = cache::Kind::kPlan,
                                   .target = "sm_90",
                                   .metadata = metadata,
                                   .preimage = PlanService::preimage(keyed),
                                   .payload = encode(plan),
                                   .log = "",
                                   .source = "",
                                   .ptx = ""}));
    ASSERT_FALSE(builds->cache().publish(object).error);
  }

  /// From now on `old` is the cuDNN, and has a plan of the problem for device 0.
  [[nodiscard]] attention::Problem not_to_be_captured(const test::SimulatedCudnn& old) {
    old.set_version({9, 15, 0});
    attention::Problem problem = small_problem(Pass::kBackward);
    problem.skv = 192;
    set_strides(problem);
    publish_plan(problem, old);
    set("KILN_CUDNN", old.path());
    reopen();
    return problem;
  }

  [[nodiscard]] std::size_t runs() const { return cudnn_->runs().size(); }

  /// Of Kiln and of cuDNN's plans.
  [[nodiscard]] std::vector<std::string> launched_since(std::size_t before) const {
    const auto all = launched();
    return {all.begin() + static_cast<std::ptrdiff_t>(before), all.end()};
  }
  [[nodiscard]] static std::string empty_kernel_of(const attention::Problem& problem) {
    return problem.pass == Pass::kBackward ? "attention_empty_bwd"
                                           : "attention_empty_fwd";
  }

  /// Of the only run, the address in that role.
  [[nodiscard]] void* given(TensorRole role) const {
    const auto all = cudnn_->runs();
    EXPECT_EQ(all.size(), 1U);
    for (std::size_t i = 0; i < all.at(0).count; ++i) {
      if (all[0].ids[i] == static_cast<std::int64_t>(role))
        return all[0].pointers[i];
    }
    return nullptr;
  }

  std::unique_ptr<test::SimulatedCudnn> cudnn_;
};

TEST_F(AttentionByCudnn, ItRunsWhereTheRulesAndCudnnItselfAllowIt) {
  const attention::Problem problem = small_problem();
  const auto chosen = choice(0, problem);
  EXPECT_EQ(chosen.backend, AttentionBackend::kCudnn);
  EXPECT_THAT(chosen.reason, HasSubstr(" runs it"));
  const auto with = tensors(0, problem, chosen.workspace_bytes);
  ASSERT_EQ(why(run(0, problem, with)), "done");
  EXPECT_EQ(given(TensorRole::kQ), with.q);
  EXPECT_EQ(given(TensorRole::kO), with.o);
  EXPECT_EQ(given(TensorRole::kStats), nullptr);
  EXPECT_THAT(lines("warning"), IsEmpty());
  EXPECT_THAT(choices("info"), ElementsAre(HasSubstr("run by cuDNN")));
  EXPECT_EQ(take_kinds().size(), 0U) << "a kernel of Kiln's was built";
}

TEST_F(AttentionByCudnn, OneThatCannotBeCalledLeavesTheProblemToKilnsKernel) {
  const auto broken = temp_.path() / "libcudnn.so.9";
  std::filesystem::copy_file(test::paths::kNoDeviceDriver, broken);
  set("KILN_CUDNN", broken);
  close();
  const attention::Problem problem = small_problem();
  const auto chosen = choice(0, problem);
  EXPECT_EQ(chosen.backend, AttentionBackend::kKiln);
  EXPECT_THAT(chosen.reason,
              AllOf(HasSubstr("cuDNN " + broken.native() + " cannot be used: "),
                    HasSubstr("look at LD_LIBRARY_PATH")));
  EXPECT_EQ(explained(0, problem)["chosen"], "kiln");
  const auto with = tensors(0, problem, chosen.workspace_bytes);
  EXPECT_EQ(why(run(0, problem, with)), "done");
  EXPECT_THAT(lines("warning"), ElementsAre(HasSubstr("run by Kiln's")));
}

TEST_F(AttentionByCudnn, BothPassesOfATrainingRunAndInACaptureToo) {
  attention::Problem forward = small_problem();
  forward.training = true;
  for (const attention::Problem& problem : {forward, test::backward_of(forward)}) {
    const auto bytes = choice(0, problem).workspace_bytes;
    ASSERT_EQ(why(call_unprepared(0, problem, bytes)), "done");
    EXPECT_EQ(why(call_captured(0, problem, bytes)), "done");
  }
  EXPECT_EQ(runs(), 4U);
}

TEST_F(AttentionByCudnn, ACaseOfKilnBenchRunsItOrIsLeftOut) {
  set("KILN_ATTENTION", "cudnn");
  reopen();
  std::vector<std::string> left_out;
  for (tools::BenchCase each : tools::bench_cases(device(1))) {
    if (each.backend != "cudnn" || each.dtype != ops::DType::kBf16 ||
        each.what != "causal, 8 x 2048 x 16 x 192/128")
      continue;
    const auto refusal = test::value_of(each.prepare(service(), device(1), each));
    if (refusal) {
      left_out.push_back(refusal->subject);
      continue;
    }
    std::vector<void*> at;
    for (const tools::BenchTensor& tensor : each.tensors)
      at.push_back(tensor.bytes == 0 ? nullptr : memory(1, tensor.bytes));
    EXPECT_EQ(why(each.start(service(), device(1), stream(1), at)), "done");
  }
  EXPECT_EQ(runs(), 1U);
  EXPECT_THAT(left_out, ElementsAre("head_dim.backward.ampere"));
  EXPECT_EQ(take_kinds().size(), 0U) << "a kernel of Kiln's was built";
}

TEST_F(AttentionByCudnn, WhatMustNotBeCapturedRunsBesideACaptureAndNotInIt) {
  const test::SimulatedCudnn old(driver_);
  const attention::Problem problem = not_to_be_captured(old);
  const auto chosen = choice(0, problem);
  ASSERT_EQ(chosen.backend, AttentionBackend::kCudnn) << chosen.reason;
  const auto with = tensors(0, problem, chosen.workspace_bytes);
  const CUstream beside = stream(0);
  CUstream captured = nullptr;
  ASSERT_EQ(driver_.find<decltype(::cuStreamCreate)>("cuStreamCreate")(
                &captured, CU_STREAM_DEFAULT),
            CUDA_SUCCESS);
  const auto run_in = [&](CUstream where) {
    return test::call(service(), device(0), where, problem, with);
  };
  ASSERT_EQ(begin_capture(captured), CUDA_SUCCESS);
  const auto refused = run_in(captured);
  EXPECT_FALSE(run_in(nullptr)) << "it would wait for the captured stream";
  EXPECT_EQ(why(run_in(beside)), "done");
  EXPECT_EQ(end_capture(captured), CUDA_SUCCESS) << "the capture was disturbed";
  EXPECT_THAT(refused,
              test::IsError(ErrorCode::kUnavailable,
                            AllOf(HasSubstr("sequence.multiple_of_128.capture: "),
                                  HasSubstr("or prepare it with options.capture"))));
  EXPECT_EQ(runs(), 1U);
}

TEST_F(AttentionByCudnn, PreparedForCapturesTooItRunsInOneByKilnsKernel) {
  const test::SimulatedCudnn old(driver_);
  const attention::Problem problem = not_to_be_captured(old);
  const auto chosen = choice(0, problem);
  ASSERT_EQ(chosen.backend, AttentionBackend::kCudnn) << chosen.reason;
  attention::Problem captured = problem;
  captured.capture = true;
  EXPECT_EQ(choice(0, captured).backend, AttentionBackend::kKiln);
  EXPECT_EQ(why(call_captured(0, problem, chosen.workspace_bytes)), "done");
  EXPECT_EQ(runs(), 0U);
  EXPECT_THAT(launched(), testing::Contains("attention_bwd"));
  ASSERT_EQ(why(call_unprepared(0, problem, chosen.workspace_bytes)), "done");
  EXPECT_EQ(runs(), 1U) << "elsewhere cuDNN still runs it";
}

TEST_F(AttentionByCudnn, ARefusalByCudnnItselfIsExplained) {
  cudnn_->set_version({9, 25, 0});  // for the rules; in the worker it is an older one
  build_plans_with(driver_.path());
  const auto said = explained(2, small_problem(Pass::kBackward, 256, 256));
  EXPECT_EQ(said["chosen"], "kiln");
  const auto& probe = said["cudnn"]["probe"];
  EXPECT_EQ(probe["ran"], true);
  EXPECT_EQ(probe["status"], "refused");
  EXPECT_THAT(said["cudnn"]["rules"].dump(), HasSubstr("probe.refused"));
}

TEST_F(AttentionByCudnn, APlanWorkerThatCrashesIsExplained) {
  build_plans_with("/nowhere/libcuda.so.1");
  const auto said = explained(0, small_problem());
  EXPECT_EQ(said["chosen"], "kiln");
  const auto& probe = said["cudnn"]["probe"];
  EXPECT_EQ(probe["ran"], false);
  EXPECT_EQ(probe["status"], "failed");
  EXPECT_THAT(probe["message"].get<std::string>(), HasSubstr("/nowhere/libcuda.so.1"));
  EXPECT_THAT(said["cudnn"]["rules"].dump(), HasSubstr("probe.failed"));
}

TEST_F(AttentionByCudnn, APlanWorkerThatHangsIsExplained) {
  const auto pipe = temp_.path() / "libcuda.so.1";  // whoever opens it waits
  ASSERT_EQ(::mkfifo(pipe.c_str(), S_IRUSR | S_IWUSR), 0);
  set("KILN_COMPILE_TIMEOUT", "1");
  build_plans_with(pipe, "KILN_SIMULATED_CUDNN_VERSION=91900");  // so that alone works
  const auto said = explained(0, small_problem());
  EXPECT_EQ(said["chosen"], "kiln");
  const auto& probe = said["cudnn"]["probe"];
  EXPECT_EQ(probe["ran"], false);
  EXPECT_EQ(probe["status"], "failed");
  EXPECT_THAT(probe["message"].get<std::string>(),
              HasSubstr("over its limit of 1.0 s"));
}

TEST_F(AttentionByCudnn, OneThatHangsInItsFirstCallIsGivenUpOnce) {
  const auto pipe = temp_.path() / "libcuda.so.1";
  ASSERT_EQ(::mkfifo(pipe.c_str(), S_IRUSR | S_IWUSR), 0);
  set("KILN_COMPILE_TIMEOUT", "1");
  build_plans_with(pipe);
  const auto begun = std::chrono::steady_clock::now();
  for (const std::int64_t dim : {64, 96}) {
    const auto said = explained(0, small_problem(Pass::kForward, dim, dim));
    EXPECT_EQ(said["chosen"], "kiln");
    EXPECT_THAT(said["cudnn"]["probe"]["message"].get<std::string>(),
                HasSubstr("gave no answer in time"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10));
}

// NVIDIA/TransformerEngine #1591.
TEST_F(AttentionByCudnn, WhatItRefusesInTheBackwardPassKilnsKernelRuns) {
  attention::Problem forward = small_problem(Pass::kForward, 192, 128);
  forward.training = true;
  ASSERT_EQ(why(call(1, forward)), "done");
  EXPECT_EQ(runs(), 1U);
  ASSERT_EQ(why(call(1, test::backward_of(forward))), "done");
  EXPECT_EQ(runs(), 1U);
  ASSERT_THAT(lines("warning"), SizeIs(1));
  EXPECT_THAT(lines("warning")[0], AllOf(HasSubstr("attention_bwd on tensor cores"),
                                         HasSubstr("head_dim.backward.ampere: "),
                                         HasSubstr("; use another attention kernel")));
  EXPECT_EQ(choice(0, test::backward_of(forward)).backend, AttentionBackend::kCudnn);
}

TEST_F(AttentionByCudnn, WithDropoutBothPassesGetTheSame) {
  attention::Problem forward = small_problem(Pass::kForward, 192, 128);
  forward.training = true;
  forward.dropout = 0.1;
  const auto chosen = choice(1, forward);
  EXPECT_EQ(chosen.backend, AttentionBackend::kKiln);
  EXPECT_THAT(
      chosen.reason,
      AllOf(HasSubstr("of the bwd pass, which must drop the same probabilities"),
            HasSubstr("head_dim.backward.ampere")));
  EXPECT_EQ(choice(1, test::backward_of(forward)).backend, AttentionBackend::kKiln);
  EXPECT_THAT(lines("warning"), SizeIs(1)) << "it is one decision";

  attention::Problem narrow = small_problem();
  narrow.training = true;
  narrow.dropout = 0.1;
  // The backward pass first: it is the same decision.
  EXPECT_EQ(choice(1, test::backward_of(narrow)).backend, AttentionBackend::kCudnn);
  EXPECT_EQ(choice(1, narrow).backend, AttentionBackend::kCudnn);
  EXPECT_EQ(why(call(1, narrow)), "done");
  EXPECT_EQ(why(call(1, test::backward_of(narrow))), "done");
  EXPECT_EQ(runs(), 2U);
}

TEST_F(AttentionByCudnn, TensorsThatItDoesNotTakeAreKilns) {
  const attention::Problem problem = small_problem();
  ASSERT_EQ(why(call(0, problem)), "done");
  ops::AttentionTensors with = tensors(0, problem);
  with.q = static_cast<const char*>(with.q) + 2;
  ASSERT_EQ(why(run(0, problem, with)), "done");
  with = tensors(0, problem);
  with.scale = -1.0F;
  ASSERT_EQ(why(run(0, problem, with)), "done");
  EXPECT_EQ(runs(), 1U);
  EXPECT_THAT(lines("warning"), ElementsAre(HasSubstr("a multiple of 16 bytes"),
                                            HasSubstr("the scale is not above 0")));
}

TEST_F(AttentionByCudnn, ItIsAskedForNoRowsThatShareMemory) {
  attention::Problem problem = small_problem();
  problem.o.head = 0;
  EXPECT_THAT(why(call_unprepared(0, problem)),
              HasSubstr("attention_forward: o: two elements would share an address"));
  EXPECT_EQ(runs(), 0U);
}

TEST_F(AttentionByCudnn, AFailureOfCudnnIsAReasonForKilnsKernel) {
  cudnn_->inject("cudnnBackendFinalize", 4000);
  ASSERT_EQ(why(call(0, small_problem())), "done");
  EXPECT_EQ(runs(), 0U);
  ASSERT_THAT(lines("warning"), SizeIs(1));
  EXPECT_THAT(lines("warning")[0],
              AllOf(HasSubstr("failed in the fwd pass: "), HasSubstr("Finalize")));
  ASSERT_EQ(why(call(0, small_problem())), "done");
  EXPECT_EQ(runs(), 0U) << "it was decided";

  set("KILN_ATTENTION", "cudnn");
  reopen();
  cudnn_->inject("cudnnBackendFinalize", 4000);
  const attention::Problem other = small_problem(Pass::kForward, 128, 128);
  EXPECT_THAT(call(0, other), test::IsError(ErrorCode::kUnavailable));
  EXPECT_EQ(why(call(0, other)), "done") << "an error is not remembered";
  EXPECT_EQ(runs(), 1U);
}

// On a device cuDNN leaves the outputs of a sequence without queries or keys as they
// were.
TEST_F(AttentionByCudnn, PaddedSequencesThatAreEmptyGetTheirOutputsAfterEachRun) {
  attention::Problem problem = small_problem();
  problem.training = true;
  problem.mask = attention::Mask::kPadding;
  for (const attention::Problem& pass : {problem, test::backward_of(problem)}) {
    const auto chosen = choice(0, pass);
    ASSERT_EQ(chosen.backend, AttentionBackend::kCudnn) << chosen.reason;
    ops::AttentionTensors with = tensors(0, pass, chosen.workspace_bytes);
    with.lengths_q = static_cast<std::int32_t*>(memory(0, 64));
    with.lengths_kv = static_cast<std::int32_t*>(memory(0, 64));
    const auto before = launched().size();
    ASSERT_EQ(why(run(0, pass, with)), "done");
    EXPECT_THAT(launched_since(before),
                ElementsAre(StartsWith("cudnn_"), empty_kernel_of(pass)));
  }
  const auto before = launched().size();
  ASSERT_EQ(why(call(0, small_problem())), "done");
  EXPECT_THAT(launched_since(before), ElementsAre(StartsWith("cudnn_")))
      << "no sequence has a length of its own";
}

TEST_F(AttentionByCudnn, PackedSequencesGetTheirOffsetsBeforeEachRun) {
  attention::Problem problem = small_problem();
  problem.training = true;
  problem.batch = 3;
  problem.layout = attention::Layout::kThd;
  problem.mask = attention::Mask::kPaddingCausal;
  set_strides(problem);
  for (const attention::Problem& pass : {problem, test::backward_of(problem)}) {
    const auto chosen = choice(0, pass);
    ASSERT_EQ(chosen.backend, AttentionBackend::kCudnn) << chosen.reason;
    ops::AttentionTensors with = tensors(0, pass, chosen.workspace_bytes);
    with.cu_seqlens_q = static_cast<std::int32_t*>(memory(0, 64));
    with.cu_seqlens_kv = static_cast<std::int32_t*>(memory(0, 64));
    const auto before = launched().size();
    ASSERT_EQ(why(run(0, pass, with)), "done");
    EXPECT_THAT(launched_since(before),
                ElementsAre("attention_sequences_fwd", StartsWith("cudnn_"),
                            empty_kernel_of(pass)));
    const auto last = cudnn_->runs().back();
    auto* const begin = static_cast<std::byte*>(with.workspace);
    std::map<std::int64_t, void*> given;
    for (std::size_t i = 0; i < last.count; ++i) given[last.ids[i]] = last.pointers[i];
    const auto at = [&](TensorRole role) {
      return static_cast<std::byte*>(given[static_cast<std::int64_t>(role)]) - begin;
    };
    EXPECT_EQ(at(TensorRole::kOffsetsQ), 0);
    EXPECT_EQ(at(TensorRole::kOffsetsK), 4 * 4);
    EXPECT_EQ(at(TensorRole::kOffsetsV), 2 * 4 * 4);
    EXPECT_EQ(at(TensorRole::kOffsetsO), 3 * 4 * 4);
    EXPECT_EQ(at(TensorRole::kLengthsQ), 4 * 4 * 4);
    EXPECT_EQ(at(TensorRole::kLengthsKv), 4 * 4 * 4 + 3 * 4);
  }
  attention::Problem large = problem;
  large.sq = large.skv = 4 << 20;
  set_strides(large);
  const auto chosen = choice(0, large);
  EXPECT_EQ(chosen.backend, AttentionBackend::kKiln);
  EXPECT_THAT(chosen.reason, HasSubstr("offsets of 32 bits"));
}

TEST_F(AttentionByCudnn, ABooleanMaskIsWrittenAtItsOwnSizeBeforeEachRun) {
  attention::Problem problem = small_problem();
  problem.training = true;
  problem.bias = {.batch = problem.skv + 3, .dim = 1};
  problem.bias_kind = attention::Bias::kPostScale;
  const std::uint64_t added = choice(0, problem).workspace_bytes;
  problem.bias_kind = attention::Bias::kBoolean;
  const auto bytes = static_cast<std::uint64_t>(problem.batch * problem.skv) * 2;
  EXPECT_EQ(choice(0, problem).workspace_bytes, added + (bytes + 255) / 256 * 256);
  EXPECT_EQ(explained(0, problem)["chosen"], "cudnn");
  for (const attention::Problem& pass : {problem, test::backward_of(problem)}) {
    const auto chosen = choice(0, pass);
    ASSERT_EQ(chosen.backend, AttentionBackend::kCudnn) << chosen.reason;
    ops::AttentionTensors with = tensors(0, pass, chosen.workspace_bytes);
    with.bias = static_cast<std::byte*>(memory(0, 4096)) + 3;  // any byte
    const auto before = launched().size();
    ASSERT_EQ(why(run(0, pass, with)), "done");
    EXPECT_THAT(launched_since(before),
                ElementsAre("attention_mask_fwd", StartsWith("cudnn_")));
    const auto last = cudnn_->runs().back();
    const auto* const bias = std::find(last.ids, last.ids + last.count,
                                       static_cast<std::int64_t>(TensorRole::kBias));
    EXPECT_EQ(last.pointers[bias - last.ids], with.workspace);
  }
}

// NVIDIA/TransformerEngine #1276: a step of all_gather. The rule asks for 9.3, but Kiln
// has no plan of that.
TEST_F(AttentionByCudnn, AVersionThatKilnCannotUseIsNotAskedAndTheRemedyIsEnough) {
  pretend({9, 1, 0});
  attention::Problem step = small_problem();
  step.mask = attention::Mask::kCausalBottomRight;
  step.skv = 512;
  set_strides(step);
  ASSERT_EQ(why(call(0, step)), "done");
  EXPECT_THAT(
      lines("warning"),
      ElementsAre(HasSubstr("run by Kiln's attention_fwd on tensor cores: cuDNN "
                            "9.1.0 is not asked: Kiln builds plans with cuDNN "
                            ">= 9.8.0; upgrade cuDNN to 9.8.0 or later")));
  EXPECT_THAT(launched(), ElementsAre("attention_fwd"));
  const auto reason = [&](std::int64_t dqk, std::int64_t dv) {
    return choice(2, small_problem(Pass::kBackward, dqk, dv)).reason;
  };
  EXPECT_THAT(reason(192, 128), HasSubstr("; upgrade cuDNN to 9.11.0 or later"));
  EXPECT_THAT(reason(192, 192), HasSubstr("and no known later version runs it"));
}

TEST_F(AttentionByCudnn, ForcedWhereTheRulesRefuseItNamesRuleAndRemedy) {
  set("KILN_ATTENTION", "cudnn");
  reopen();
  EXPECT_THAT(call(1, small_problem(Pass::kBackward, 192, 128)),
              test::IsError(ErrorCode::kUnavailable,
                            AllOf(HasSubstr("KILN_ATTENTION=cudnn, and cuDNN "),
                                  HasSubstr("head_dim.backward.ampere"),
                                  HasSubstr("; use another"))));
}

}  // namespace
}  // namespace kiln
