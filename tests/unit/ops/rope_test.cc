// What the rotary embedding's operations refuse, and what they choose.

#include <array>

#include "ops/plans.h"
#include "tests/unit/ops/refusals.h"

namespace kiln::ops::rope_checks {
namespace {

const Device kDevice{.name = "planned", .capability = {9, 0}, .multiprocessors = 132};

// Nothing is read or written there.
alignas(16) const std::array<std::uint16_t, 4096> kMemory{};

alignas(16) const std::array<float, 4096> kTable{};

void* at(std::size_t element) {
  return const_cast<std::uint16_t*>(
      kMemory.data() + element);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

/// [sequence, batch, heads, dim] of 2 x 3 tokens, 4 and 2 heads of 16.
template <typename Args = RopeForward>
Args arguments() {
  Args args;
  args.dtype = DType::kBf16;
  args.style = RopeStyle::kHalf;
  args.batch = 2;
  args.sequence = 3;
  args.head_dim = 16;
  args.rotary_dim = 8;
  args.q = {.out = at(0),
            .in = at(1024),
            .heads = 4,
            .out_strides = {.batch = 64, .sequence = 128, .head = 16},
            .in_strides = {.batch = 64, .sequence = 128, .head = 16}};
  args.k = {.out = at(2048),
            .in = at(3072),
            .heads = 2,
            .out_strides = {.batch = 32, .sequence = 64, .head = 16},
            .in_strides = {.batch = 32, .sequence = 64, .head = 16}};
  args.table = {.angles = kTable.data(), .positions = 10, .columns = 8};
  return args;
}

/// The refusal of what `change` makes of right arguments.
template <typename Change>
std::string refused(Change change) {
  RopeForward args = arguments();
  EXPECT_TRUE(plan(args, kDevice));
  change(args);
  return refusal(plan(args, kDevice));
}

TEST(RopePlan, RefusesARotaryDimThatIsOddOrTooLarge) {
  for (const std::int64_t wrong : {0, 7, 18}) {
    EXPECT_THAT(refused([&](auto& args) { args.rotary_dim = wrong; }),
                HasSubstr("even, and 2 to head_dim, 16"))
        << wrong;
  }
}

TEST(RopePlan, RefusesATableThatFitsNot) {
  EXPECT_THAT(refused([](auto& args) { args.table.columns = 6; }),
              HasSubstr("table.columns is 6: rotary_dim, 8, or half of it"));
  EXPECT_THAT(refused([](auto& args) { args.table.row_stride = 7; }),
              HasSubstr("table.row_stride is 7, and a row has 8 columns"));
  EXPECT_THAT(refused([](auto& args) { args.table.positions = 0; }),
              HasSubstr("table.positions is 0"));
  EXPECT_THAT(refused([](auto& args) { args.table.cos = kTable.data(); }),
              HasSubstr("either angles, or cos and sin"));
  EXPECT_THAT(refused([](auto& args) {
                args.table.angles = nullptr;
                args.table.cos = kTable.data();
              }),
              HasSubstr("table.sin is null"));
  EXPECT_THAT(refused([](auto& args) {
                args.table.angles = nullptr;
                args.table.cos = args.table.sin = kTable.data();
                args.table.dtype = DType::kF16;
              }),
              HasSubstr("table.dtype is f16: f32, or the tensors' bf16"));
}

TEST(RopePlan, RefusesAPositionOutsideTheTableWhereItIsKnown) {
  EXPECT_EQ(refused([](auto& args) { args.start = 8; }),
            "rope_forward: position 10 is outside the table, which has 10");
  EXPECT_EQ(refused([](auto& args) { args.start = -1; }), "rope_forward: start is -1");
  RopeForward args = arguments();
  args.start = 7;
  EXPECT_TRUE(plan(args, kDevice));
  const std::array<std::int32_t, 3> numbers{};
  args.starts = numbers.data();
  args.start = 100;
  EXPECT_TRUE(plan(args, kDevice)) << "starts may be below 0";
  args.starts = nullptr;
  args.cu_seqlens = numbers.data();
  EXPECT_THAT(refusal(plan(args, kDevice)), HasSubstr("position 100 is outside"));
  args.start = 9;
  EXPECT_TRUE(plan(args, kDevice)) << "sequences may have a token each";
}

TEST(RopePlan, RefusesStridesThatAreNegativeOrFoldAnOutput) {
  EXPECT_THAT(refused([](auto& args) { args.q.in_strides.head = -16; }),
              HasSubstr("q.in: the stride of head is -16"));
  EXPECT_THAT(
      refused([](auto& args) { args.k.out_strides.batch = 0; }),
      HasSubstr("k.out: two elements would share an address: the stride of batch"));
  RopeForward args = arguments();
  args.q.in_strides.batch = 0;  // one input for the whole batch
  EXPECT_TRUE(plan(args, kDevice));
  EXPECT_TRUE(check_pointers(args));
}

// Strides that were forgotten would give every token the same head.
TEST(RopePlan, RefusesAnInputThatIsOneHeadForAll) {
  EXPECT_EQ(refused([](auto& args) { args.q.in_strides = {}; }),
            "rope_forward: q.in_strides are 0: every token would have the same head");
  EXPECT_EQ(refused([](auto& args) { args.k.in_strides = {}; }),
            "rope_forward: k.in_strides are 0: every token would have the same head");
  RopeForward args = arguments();
  args.k.in_strides.head = 0;  // one key for all heads
  EXPECT_TRUE(plan(args, kDevice));
  args.q.heads = args.batch = args.sequence = 1;
  args.q.in_strides = args.q.out_strides = {};
  args.k.heads = 0;
  EXPECT_TRUE(plan(args, kDevice)) << "there is one head";
}

TEST(RopePlan, NamesTheKernelByPassStyleAndTable) {
  RopeForward args = arguments();
  const Launch launch = plan(args, kDevice).value().at(0);
  EXPECT_EQ(launch.kernel, "rope_fwd");
  EXPECT_EQ(launch.parameters,
            (Parameters{{"dtype", "bf16"}, {"style", "half"}, {"table", "angles"}}));
  args.style = RopeStyle::kInterleaved;
  args.table.angles = nullptr;
  args.table.cos = args.table.sin = kTable.data();
  args.table.dtype = DType::kF32;
  EXPECT_EQ(plan(args, kDevice).value().at(0).parameters.at("table"), "cos_sin_f32");
  EXPECT_EQ(plan(args, kDevice).value().at(0).parameters.at("style"), "interleaved");
  args.dtype = DType::kF32;
  EXPECT_EQ(plan(args, kDevice).value().at(0).parameters.at("table"), "cos_sin");
  EXPECT_EQ(plan(arguments<RopeBackward>(), kDevice).value().at(0).kernel, "rope_bwd");
}

TEST(RopePlan, DividesHeadsAmongMoreThreadsWhereTokensAreFew) {
  RopeForward args = arguments();
  args.head_dim = args.rotary_dim = args.table.columns = 128;
  args.table.positions = 1 << 20;
  args.batch = 1;
  args.q.heads = 32;
  args.k.heads = 8;
  for (auto* const tensor : {&args.q, &args.k}) {
    tensor->in_strides = tensor->out_strides = {.sequence = 4096, .head = 128};
  }
  for (const auto& [sequence, lanes] :
       {std::pair{8192, 5}, {2048, 10}, {256, 40}, {1, 40}}) {
    args.sequence = sequence;
    const Launch launch = plan(args, kDevice).value().at(0);
    EXPECT_EQ(launch.extents.at("tokens"), sequence);
    EXPECT_EQ(launch.extents.at("slots"), std::int64_t{8} * lanes) << sequence;
  }
}

TEST(RopePlan, LaunchesNothingWhereThereIsNothing) {
  RopeForward args = arguments();
  args.batch = 0;
  EXPECT_TRUE(plan(args, kDevice).value().empty());
  EXPECT_TRUE(check_pointers(args));
  args = arguments();
  args.q.heads = args.k.heads = 0;
  EXPECT_TRUE(plan(args, kDevice).value().empty());
}

// As parts of one [tokens, query and key heads, dim].
TEST(RopePointers, LetOutputsLieSideBySideInEachToken) {
  RopeForward args = arguments();
  args.q.out_strides = args.k.out_strides = {.batch = 96, .sequence = 192, .head = 16};
  args.k.out = at(64);
  EXPECT_TRUE(check_pointers(args));
  std::swap(args.q.out, args.k.out);  // the key first: 2 heads are no place for it
  args.q.out = at(32);
  EXPECT_TRUE(check_pointers(args));
  args.q.out = at(31);
  EXPECT_THAT(refusal(check_pointers(args)), HasSubstr("k.out overlaps q.out"));
  args.q.out = at(33);  // its last element is the next token's first key
  EXPECT_THAT(refusal(check_pointers(args)), HasSubstr("k.out overlaps q.out"));
}

// As parts of one [batch, query and key heads, sequence, dim].
TEST(RopePointers, LetOutputsLieSideBySideInEachSequence) {
  RopeForward args = arguments();
  args.q.out_strides = args.k.out_strides = {.batch = 288, .sequence = 16, .head = 48};
  args.k.out = at(192);
  EXPECT_TRUE(check_pointers(args));
  args.k.out = at(191);
  EXPECT_THAT(refusal(check_pointers(args)), HasSubstr("k.out overlaps q.out"));
  args.k.out_strides.batch = 300;
  args.k.out = at(192);
  EXPECT_THAT(refusal(check_pointers(args)), HasSubstr("k.out overlaps q.out"));
}

// As parts of one [sequence, batch, heads, 3 x dim] of query, key and value.
TEST(RopePointers, LetOutputsLieSideBySideInEachHead) {
  RopeForward args = arguments();
  args.k.heads = args.q.heads;
  args.q.out_strides = args.k.out_strides = {.batch = 192, .sequence = 384, .head = 48};
  args.k.in_strides = args.q.in_strides;
  args.q.in = at(2048);
  args.k.out = at(16);
  EXPECT_TRUE(check_pointers(args));
  args.k.out = at(33);  // its last element is the next head's first of the query
  EXPECT_THAT(refusal(check_pointers(args)), HasSubstr("k.out overlaps q.out"));
  args.k.out = at(16);
  args.k.heads = 2;
  EXPECT_THAT(refusal(check_pointers(args)), HasSubstr("k.out overlaps q.out"))
      << "not the same heads";
}

}  // namespace
}  // namespace kiln::ops::rope_checks
