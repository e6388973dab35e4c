// Plans in bytes, and damage that cuDNN itself would not notice.

#include "attention/plan.h"

#include <nlohmann/json.hpp>

#include "codec/fields.h"
#include "tests/support/attention_problem.h"
#include "tests/support/made_plan.h"
#include "tests/support/test.h"

namespace kiln::attention {
namespace {

using test::made_plan;
using test::published_device;

Plan sound_plan() {
  return made_plan(published_device("h200"), 90);
}

std::string why(const Result<void>& result) {
  return result ? "sound" : result.error().message;
}

TEST(Plan, ComesBackFromItsBytesAsItWas) {
  const Plan plan = sound_plan();
  const auto back = decode_plan(encode(plan));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, plan);
  EXPECT_EQ(back->workspace_bytes(), 1280U);
  EXPECT_EQ(why(check_fully(*back)), "sound");
}

TEST(Plan, EveryTruncationIsCorrupt) {
  const Bytes bytes = encode(sound_plan());
  for (std::size_t size = 0; size < bytes.size(); size += 7) {
    const auto plan = decode_plan(ByteView(bytes).first(size));
    ASSERT_FALSE(plan) << size;
    EXPECT_EQ(plan.error().code, ErrorCode::kCorrupt);
  }
}

TEST(Plan, WhatReachesOutOfItsBoundsIsCorrupt) {
  const auto decodes = [](const std::function<void(Plan&)>& damage) {
    Plan plan = sound_plan();
    damage(plan);
    return decode_plan(encode(plan)).has_value();
  };
  EXPECT_TRUE(decodes([](Plan&) {}));
  EXPECT_FALSE(decodes([](Plan& p) { p.kernels[0].cubin_offset = p.json.size() + 1; }));
  EXPECT_FALSE(decodes([](Plan& p) { p.kernels[0].cubin_chars = ~std::uint64_t{0}; }));
  EXPECT_FALSE(decodes([](Plan& p) { p.workspace[0].zero_bytes = 1025; }));
  EXPECT_FALSE(decodes([](Plan& p) { p.workspace[1].offset = ~std::uint64_t{0}; }));
  EXPECT_FALSE(decodes([](Plan& p) { p.engine_workspace_bytes = ~std::uint64_t{0}; }));
  EXPECT_FALSE(decodes([](Plan& p) { p.workspace[1].offset = 513; }));
  // cuDNN reads a scalar by its address.
  EXPECT_FALSE(decodes([](Plan& p) { p.scalars[0].value.clear(); }));
  EXPECT_FALSE(decodes([](Plan& p) { p.scalars[0].value.resize(3); }));
  EXPECT_FALSE(decodes([](Plan& p) { p.scalars[0].uid = p.workspace[0].uid; }));
  EXPECT_FALSE(decodes([](Plan& p) { p.tensors.push_back(TensorRole::kQ); }));
}

TEST(Plan, AnUnknownTensorIsCorrupt) {
  Fields fields = Fields::decode(encode(sound_plan())).value();
  fields.add("tensor", "7");
  const auto plan = decode_plan(fields.encode());
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, HasSubstr("field 'tensor' has no value 7"));
}

TEST(Plan, AKernelOfAnotherArchitectureIsCorrupt) {
  EXPECT_THAT(why(check_kernels(made_plan(published_device("h200"), 80))),
              HasSubstr("kernel k is for 8.0, the plan for 9.0"));
}

TEST(Plan, ADamagedKernelIsCorrupt) {
  const Plan sound = sound_plan();
  const auto with = [&](std::size_t at, char c) {
    Plan plan = sound;
    plan.json[plan.kernels[0].cubin_offset + at] = c;
    return why(check_kernels(plan));
  };
  EXPECT_THAT(with(40, '*'), HasSubstr("is no base64"));
  EXPECT_THAT(with(0, 'A'), HasSubstr("kernel k:"));  // no longer an ELF file
  Plan cut = sound;
  cut.kernels[0].cubin_chars = 400;
  EXPECT_THAT(why(check_kernels(cut)), HasSubstr("kernel k:"));
  Plan none = sound;
  none.kernels.clear();
  EXPECT_THAT(why(check_kernels(none)), HasSubstr("it has no kernel"));
}

TEST(Plan, WhatItsJsonSaysMustBeWhatThePlanSays) {
  const auto checked = [](const std::function<void(Plan&)>& damage) {
    Plan plan = sound_plan();
    damage(plan);
    return why(check_fully(plan));
  };
  EXPECT_THAT(checked([](Plan& p) {
                p.cudnn = {9, 20, 0};
              }),
              HasSubstr("its JSON is another cuDNN's"));
  EXPECT_THAT(checked([](Plan& p) {
                p.bound =
                    binding_of(published_device("h100-pcie").cudnn_json()).value();
              }),
              HasSubstr("multiProcessorCount is 114 in the plan, 132 here"));
  EXPECT_THAT(checked([](Plan& p) { p.kernels[0].name = "other"; }),
              HasSubstr("its kernels are not those of its JSON"));
  EXPECT_THAT(checked([](Plan& p) { p.json.pop_back(); }),
              HasSubstr("its JSON has no kernels"));
}

/// Its JSON without that property of the device.
Plan without(Plan plan, const std::string& property) {
  auto json = nlohmann::ordered_json::parse(plan.json);
  json["GPUProfile"].erase(property);
  plan.json = json.dump();
  EXPECT_TRUE(read_json(plan));
  return plan;
}

// cuDNN 9.8 and 9.10 have fewer than 9.19.
TEST(Plan, MayLeaveOutOfItsJsonWhatCudnnDoesNotCompareButTheArchitecture) {
  EXPECT_EQ(why(check_fully(without(sound_plan(), "maxThreadsPerBlock"))), "sound");
  EXPECT_THAT(why(check_fully(without(sound_plan(), "deviceVer"))),
              HasSubstr("'deviceVer' is missing"));
}

TEST(Plan, EveryRoleHasAWord) {
  for (auto role = static_cast<unsigned>(TensorRole::kQ);
       role <= static_cast<unsigned>(kLastTensorRole); ++role)
    EXPECT_FALSE(to_string(static_cast<TensorRole>(role)).empty()) << role;
  EXPECT_EQ(to_string(TensorRole::kQ), "q");
  EXPECT_EQ(to_string(TensorRole::kGradBias), "grad_bias");
}

}  // namespace
}  // namespace kiln::attention
