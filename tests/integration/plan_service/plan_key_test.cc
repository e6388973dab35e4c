// What two plans share a key by, and what tells them apart.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/integration/plan_service/plan_service_fixture.h"

namespace kiln {
namespace {

using attention::Problem;
using test::attention_problem;
using Change = std::function<void(Problem&)>;

class PlanKeyTest : public test::PlanServiceFixture {
 protected:
  Digest digest(const Problem& problem) { return key(problem, h200_).key; }
  Digest digest(const device::DeviceProperties& device) {
    return key(attention_problem(), device).key;
  }
};

Change backward_with(const Change& more = {}) {
  return [more](Problem& problem) {
    problem.pass = attention::Pass::kBackward;
    problem.training = problem.stats = true;
    if (more)
      more(problem);
  };
}

TEST_F(PlanKeyTest, WhatNoPlanDependsOnIsNotInTheKey) {
  const auto with = [&](const Change& change) {
    return digest(attention_problem(change));
  };
  const Digest plain = with({});
  EXPECT_EQ(with([](Problem& each) { each.capture = true; }), plain);
  EXPECT_EQ(with([](Problem& each) { each.deterministic = true; }), plain);
  // A window that reaches over everything is none.
  EXPECT_EQ(with([](Problem& each) { each.window_left = each.skv; }), plain);
  EXPECT_NE(with([](Problem& each) { each.window_left = each.skv - 1; }), plain);
  const Digest with_stats = with([](Problem& each) { each.stats = true; });
  EXPECT_NE(with_stats, plain);
  EXPECT_EQ(with([](Problem& each) { each.training = true; }), with_stats);
  EXPECT_EQ(with([](Problem& each) { each.training = each.stats = true; }), with_stats);
  EXPECT_EQ(with(backward_with([](Problem& each) { each.capture = true; })),
            with(backward_with()));
}

TEST_F(PlanKeyTest, EverythingElseOfAProblemIsInTheKey) {
  const std::vector<Change> changes{
      {},
      [](Problem& each) { each.dtype = ops::DType::kF16; },
      [](Problem& each) { each.batch = 3; },
      [](Problem& each) { each.heads = each.kv_heads = 8; },
      [](Problem& each) { each.kv_heads = 2; },
      [](Problem& each) { each.sq = 128; },
      [](Problem& each) { each.skv = 128; },
      [](Problem& each) { each.dqk = 128; },
      [](Problem& each) { each.dv = 128; },
      [](Problem& each) { each.layout = attention::Layout::kSbhd; },
      [](Problem& each) { each.layout = attention::Layout::kBhsd; },
      [](Problem& each) { each.layout = attention::Layout::kThd; },
      [](Problem& each) { each.mask = attention::Mask::kCausal; },
      [](Problem& each) { each.mask = attention::Mask::kCausalBottomRight; },
      [](Problem& each) { each.mask = attention::Mask::kPadding; },
      [](Problem& each) { each.window_left = 64; },
      [](Problem& each) { each.window_right = 64; },
      [](Problem& each) { each.bias_kind = attention::Bias::kPostScale; },
      [](Problem& each) { each.bias_kind = attention::Bias::kAlibi; },
      [](Problem& each) { each.dropout = 0.1; },
      [](Problem& each) { each.stats = true; },
      backward_with(),
      backward_with([](Problem& each) { each.deterministic = true; }),
      backward_with(
          [](Problem& each) { each.bias_kind = attention::Bias::kPostScale; }),
      backward_with([](Problem& each) {
        each.bias_kind = attention::Bias::kPostScale;
        each.bias_gradient = true;
      }),
  };
  std::set<Digest> keys;
  for (std::size_t i = 0; i < changes.size(); ++i)
    EXPECT_TRUE(keys.insert(digest(attention_problem(changes[i]))).second) << i;
  // Each stride, which no flag names.
  for (attention::Strides Problem::*const tensor :
       {&Problem::q, &Problem::k, &Problem::v, &Problem::o}) {
    for (std::int64_t attention::Strides::*const stride :
         {&attention::Strides::batch, &attention::Strides::head,
          &attention::Strides::sequence}) {
      Problem problem = attention_problem();
      problem.*tensor.*stride *= 2;
      EXPECT_TRUE(keys.insert(digest(problem)).second);
    }
  }
}

TEST_F(PlanKeyTest, ABiasHasTheKeyOfWhatItIsAlikeFor) {
  using attention::Bias;
  const auto with = [&](const attention::Strides& by, Bias kind = Bias::kPostScale) {
    return digest(attention_problem([&](Problem& each) {
      each.bias_kind = kind;
      each.bias = by;
    }));
  };
  const Problem of = attention_problem();
  const std::int64_t head = of.sq * of.skv;
  const Digest usual = with({});
  EXPECT_EQ(with({.head = head, .sequence = of.skv, .dim = 1}), usual);
  std::set<Digest> keys{usual};
  for (const attention::Strides& by : std::initializer_list<attention::Strides>{
           {.sequence = of.skv, .dim = 1},
           {.batch = head, .sequence = of.skv, .dim = 1},
           {.batch = of.heads * head, .head = head, .sequence = of.skv, .dim = 1},
           {.head = head, .sequence = of.skv + 8, .dim = 1},
           {.batch = of.skv, .dim = 1}})
    EXPECT_TRUE(keys.insert(with(by)).second);
  // A boolean one is written as a contiguous one that is added.
  EXPECT_EQ(with({}, Bias::kBoolean), usual);
  EXPECT_EQ(with({.head = 9 * head, .sequence = 2 * of.skv, .dim = 1}, Bias::kBoolean),
            usual);
  EXPECT_EQ(with({.batch = 7, .dim = 1}, Bias::kBoolean),
            with({.batch = of.skv, .dim = 1}));
}

TEST_F(PlanKeyTest, ABiasOfOneBatchAndHeadHasOneKeyWhateverTheirStrides) {
  const auto with = [&](std::int64_t batch, std::int64_t head) {
    return digest(attention_problem([&](Problem& each) {
      each.batch = each.heads = each.kv_heads = 1;
      each.bias_kind = attention::Bias::kPostScale;
      each.bias = {.batch = batch, .head = head, .sequence = each.skv, .dim = 1};
    }));
  };
  EXPECT_EQ(with(0, 0), with(5, 0));
  EXPECT_EQ(with(0, 0), with(0, 7));
}

TEST_F(PlanKeyTest, TwoDevicesThatAPlanCannotTellApartShareOne) {
  const Digest h200 = digest(h200_);
  EXPECT_EQ(digest(test::published_device("h100-sxm")), h200);
  EXPECT_NE(digest(test::published_device("h100-pcie")), h200);
  EXPECT_NE(digest(test::published_device("b200")), h200);
}

TEST_F(PlanKeyTest, OfADeviceWhatCudnnComparesIsInTheKeyAndNothingElse) {
  const auto with = [&](std::int64_t device::DeviceProperties::*const property) {
    device::DeviceProperties device = h200_;
    device.*property += 10;
    return digest(device);
  };
  using Properties = device::DeviceProperties;
  const Digest same = digest(h200_);
  std::set<Digest> keys{same};
  for (std::int64_t Properties::*const property :
       {&Properties::driver_version, &Properties::multiprocessors,
        &Properties::device_version, &Properties::registers_per_block,
        &Properties::shared_bytes_per_block, &Properties::shared_bytes_per_block_optin,
        &Properties::reserved_shared_bytes_per_block,
        &Properties::registers_per_multiprocessor, &Properties::threads_per_block,
        &Properties::threads_per_multiprocessor})
    EXPECT_TRUE(keys.insert(with(property)).second);
  for (std::int64_t Properties::*const property :
       {&Properties::memory_bytes, &Properties::clock_khz,
        &Properties::memory_clock_khz, &Properties::l2_bytes, &Properties::ordinal,
        &Properties::pci_device_id, &Properties::blocks_per_multiprocessor})
    EXPECT_EQ(with(property), same);
  Properties renamed = h200_;
  renamed.name = "another";
  EXPECT_EQ(digest(renamed), same);
}

TEST_F(PlanKeyTest, TheKeyIsTheDigestOfFieldsThatPeopleCanRead) {
  const KeyedPlan keyed = key(attention_problem(), h200_);
  const Fields fields = PlanService::preimage(keyed);
  EXPECT_EQ(fields.digest(), keyed.key);
  std::map<std::string, std::string> values;
  for (const Field& field : fields.list()) values[field.label] = field.value;
  EXPECT_EQ(values["kind"], "cudnn_plan");
  EXPECT_EQ(values["cudnn"], to_string(keyed.version));
  EXPECT_EQ(values["device.deviceVer"], "900");
  EXPECT_EQ(values["device.multiProcessorCount"], "132");
  EXPECT_EQ(values.count("device.deviceName"), 0U);
}

}  // namespace
}  // namespace kiln
