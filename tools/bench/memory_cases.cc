// The memory-bound operations, at the sizes of LLM training.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tools/bench/memory_case.h"

namespace kiln::tools {
namespace {

constexpr double kForwardGoal = 0.90;
constexpr double kBackwardGoal = 0.85;

/// The L2 cache of an H100, and the share of each of its 132 multiprocessors. If one
/// multiprocessor works on a row, data that it reads twice should fit in its share.
constexpr double kCacheBytes = 50.0 * (1 << 20);
constexpr double kBlockCacheBytes = kCacheBytes / 132;

// Norms. Kernels for the longest rows move more than the least bytes: they pass over a
// row several times (templates/norm); shorter rows stay in registers.
constexpr std::int64_t kLongestKept = 8192;

/// The fraction of a second read that comes from memory again, if `bytes` were moved in
/// between: a block's share of the L2 cache keeps only its own size.
double miss_fraction(double bytes) {
  return std::max(0.0, 1 - kBlockCacheBytes / bytes);
}

template <typename Args>
double forward_extra_bytes(const Args& args, double row) {
  const double kept = 1024.0 * 16 * (args.adds_residual ? 3 : 6);
  if (args.cols <= kLongestKept || row <= kept)
    return 0;
  const int passed = args.adds_residual ? 3 : 2;
  return static_cast<double>(args.rows) * row * miss_fraction(passed * row);
}

template <typename Args>
double backward_extra_bytes(const Args& args, double row) {
  if (args.cols <= kLongestKept)
    return 0;
  constexpr double kShared = 224 << 10;
  constexpr int kSums = requires {
    args.dbias;
  }
  ? 2 : 1;
  const auto cols = static_cast<double>(args.cols);
  const double inputs = 2 * static_cast<double>(args.rows) * row;
  const double first = std::min(1.0, kShared / sizeof(float) / kSums / cols);
  const int passed = args.adds_residual ? 4 : 3;
  const double for_dx = inputs * miss_fraction(passed * row);
  const double for_first_columns = inputs * first * miss_fraction(passed * row * first);
  const double for_other_columns = inputs * (1 - first);
  // Each block writes its partial sums, which are read again to be added up.
  const double partials = 132 * cols * sizeof(float) * kSums;
  return for_dx + for_first_columns + for_other_columns +
         (partials > kCacheBytes ? 2 * partials : 0);
}

/// Of activations.
constexpr std::int64_t kRows = 8192;
constexpr std::int64_t kCols = 32768;

class Cases {
 public:
  Cases(std::vector<BenchCase>& all, ops::DType dtype, const Device& device)
      : all_(all), dtype_(dtype), device_(device) {}

  void add_softmax() {
    using enum ops::SoftmaxMask;
    for (const auto& [mask, name] :
         {std::pair(kNone, "plain"), {kBytes, "masked"}, {kCausal, "causal"}}) {
      add_softmax<ops::SoftmaxForward>(mask, name);
      add_softmax<ops::SoftmaxBackward>(mask, name);
    }
  }

  void add_rope() {
    using enum ops::RopeStyle;
    const auto add = [this](ops::RopeStyle style, bool has_angles, const char* name) {
      add_rope<ops::RopeForward>(style, has_angles, name);
      add_rope<ops::RopeBackward>(style, has_angles, name);
    };
    add(kHalf, false, "half");
    if (!has_rare_forms())
      return;
    add(kHalf, true, "half, angles");
    add(kInterleaved, true, "interleaved, angles");
  }

  void add_norms() {
    for (const std::int64_t cols : {1024, 4096, 8192, 65536}) {
      const bool is_rare = has_rare_forms() && cols == 4096;
      for (const bool has_residual : {false, true}) {
        add_norm<ops::RmsNormForward>(cols, has_residual);
        if (has_residual && !is_rare)
          continue;
        add_norm<ops::RmsNormBackward>(cols, has_residual);
        add_norm<ops::LayerNormForward>(cols, has_residual);
        add_norm<ops::LayerNormBackward>(cols, has_residual);
      }
    }
  }

  void add_activations() {
    using ops::ActivationKind;
    using ops::GluKind;
    const auto add_glus = [this](GluKind kind, const char* name, bool has_bias = false,
                                 bool has_weight = false) {
      add_glu<ops::GluForward>(kind, name, has_bias, has_weight);
      add_glu<ops::GluBackward>(kind, name, has_bias, has_weight);
    };
    add_activation(ActivationKind::kGeluTanh, true, "gelu_tanh, bias");
    add_activation(ActivationKind::kGeluErf, true, "gelu_erf, bias");
    if (has_rare_forms())
      add_activation(ActivationKind::kSquaredRelu, false, "squared_relu");
    add_glus(GluKind::kSwiglu, "swiglu");
    add_glus(GluKind::kGegluTanh, "geglu_tanh");
    if (!has_rare_forms())
      return;
    add_glus(GluKind::kGegluErf, "geglu_erf");
    add_glus(GluKind::kReglu, "reglu");
    add_glus(GluKind::kSwiglu, "swiglu, bias", true);
    add_glus(GluKind::kSwiglu, "swiglu, weight", false, true);
    add_glus(GluKind::kClampedSwiglu, "clamped_swiglu, bias", true);
  }

  void add_cross_entropy() {
    add_cross_entropy<ops::CrossEntropy>("loss and gradient", kBackwardGoal, true);
    add_cross_entropy<ops::CrossEntropyForward>("loss", kForwardGoal, false);
    add_cross_entropy<ops::CrossEntropyBackward>("gradient", kBackwardGoal, false);
  }

 private:
  template <typename Args>
  void add(MemoryCase<Args> of) {
    of.args.dtype = dtype_;
    all_.push_back(case_of(device_, std::move(of)));
  }
  [[nodiscard]] bool has_rare_forms() const { return dtype_ == kRareFormDType; }
  [[nodiscard]] double bytes_of(std::int64_t elements) const {
    return static_cast<double>(tools::bytes_of(dtype_, elements));
  }

  /// 4 sequences of 32 heads.
  template <typename Args>
  void add_softmax(ops::SoftmaxMask mask, const char* name) {
    constexpr std::int64_t kHeads = 128;
    constexpr std::int64_t kLength = 2048;
    constexpr bool kIsForward = requires(Args of) {
      of.mask_batch;
    };
    Args args{
        .heads = kHeads, .sq = kLength, .skv = kLength, .scale = 0.125F, .mask = mask};
    if constexpr (kIsForward)
      args.mask_batch = 1;
    const auto hidden = static_cast<std::uint64_t>(
        mask == ops::SoftmaxMask::kCausal ? bytes_of(kHeads * kLength * kLength) / 2
                                          : 0);
    add<Args>({.args = args,
               .what = fmt::format("{}, {} x {} x {}", name, kHeads, kLength, kLength),
               .goal = kIsForward ? kForwardGoal : kBackwardGoal,
               .unread_bytes = (kIsForward ? 1 : 2) * hidden});
  }

  /// 4 sequences of 2048 tokens, 32 heads of queries and 8 of keys.
  template <typename Args>
  void add_rope(ops::RopeStyle style, bool has_angles, const char* name) {
    constexpr std::int64_t kLength = 2048;
    constexpr std::int64_t kDim = 128;
    const auto tensor = [](std::int64_t heads) {
      const ops::RopeStrides strides{
          .batch = kLength * heads * kDim, .sequence = heads * kDim, .head = kDim};
      return ops::RopeTensor{
          .heads = heads, .out_strides = strides, .in_strides = strides};
    };
    const ops::RopeArguments args{
        .style = style,
        .batch = 4,
        .sequence = kLength,
        .head_dim = kDim,
        .rotary_dim = kDim,
        .q = tensor(32),
        .k = tensor(8),
        .table = {.dtype = ops::DType::kF32, .positions = kLength, .columns = kDim}};
    add<Args>({.args = {args},
             .what = fmt::format("{}, {} x ({} + {}) x {}", name, args.batch * kLength,
                                 args.q.heads, args.k.heads, kDim),
             .goal = kForwardGoal,
             .leave_out = has_angles ? [](Args& of) {
               of.table.cos = of.table.sin = nullptr;
               of.starts = of.cu_seqlens = nullptr;
             } : [](Args& of) {
               of.table.angles = nullptr;
               of.starts = of.cu_seqlens = nullptr;
             }});
  }

  template <typename Args>
  void add_norm(std::int64_t cols, bool has_residual) {
    constexpr std::int64_t kElements = 8192LL * 8192;
    Args args;
    args.rows = kElements / cols;
    args.cols = cols;
    args.adds_residual = has_residual;
    const double row = bytes_of(cols);
    constexpr bool kIsForward = requires {
      args.eps;
    };
    double extra = 0;
    if constexpr (kIsForward)
      extra = forward_extra_bytes(args, row);
    else
      extra = backward_extra_bytes(args, row);
    add<Args>({.args = args,
               .what = fmt::format("{}{} x {}", has_residual ? "residual, " : "",
                                   args.rows, cols),
               .goal = kIsForward ? kForwardGoal : kBackwardGoal,
               .extra_bytes = extra});
  }

  void add_activation(ops::ActivationKind kind, bool has_bias, const char* name) {
    const std::string what = fmt::format("{}, {} x {}", name, kRows, kCols);
    add<ops::ActivationForward>(
        {.args = {.kind = kind, .has_bias = has_bias, .rows = kRows, .cols = kCols},
         .what = what,
         .goal = kForwardGoal});
    add<ops::ActivationBackward>(
        {.args = {.kind = kind, .has_bias = has_bias, .rows = kRows, .cols = kCols},
         .what = what,
         .goal = kBackwardGoal});
  }

  /// A packed input; `alpha`, `limit` and `offset` as in gpt-oss.
  template <typename Args>
  void add_glu(ops::GluKind kind, const char* name, bool has_bias, bool has_weight) {
    Args args{.kind = kind};
    args.has_bias = has_bias;
    args.has_weight = has_weight;
    args.rows = kRows;
    args.cols = kCols;
    if (kind == ops::GluKind::kClampedSwiglu) {
      args.alpha = 1.702F;
      args.limit = 7;
      args.offset = 1;
    }
    add<Args>({.args = args,
               .what = fmt::format("{}, packed, {} x 2 x {}", name, kRows, kCols),
               .goal = kForwardGoal});
  }

  template <typename Args>
  void add_cross_entropy(const char* name, double goal, bool reads_twice) {
    constexpr std::int64_t kTokens = 8192;
    constexpr std::int64_t kVocabulary = 128256;
    Args args;
    args.rows = kTokens;
    args.vocabulary = kVocabulary;
    // Of a row, which loss and gradient in one pass read twice, what fits neither in
    // the block's registers nor in its share of the L2 cache. The streaming stores
    // leave that share to the logits.
    constexpr double kRegisters = 64.0 * 1024;
    const double again = bytes_of(kVocabulary) - kRegisters - kBlockCacheBytes;
    add<Args>({.args = args,
               .what = fmt::format("{}, {} x {}", name, kTokens, kVocabulary),
               .goal = goal,
               .extra_bytes = reads_twice ? kTokens * std::max(0.0, again) : 0,
               .leave_out = [](Args& of) {
                 if constexpr (requires { of.lse; })
                   of.lse = nullptr;
                 if constexpr (requires { of.row_scale; })
                   of.row_scale = nullptr;
               }});
  }

  std::vector<BenchCase>& all_;
  const ops::DType dtype_;
  const Device& device_;
};

}  // namespace

void add_memory_cases(std::vector<BenchCase>& cases, ops::DType dtype,
                      const Device& device) {
  Cases all(cases, dtype, device);
  all.add_softmax();
  all.add_rope();
  all.add_norms();
  all.add_activations();
  all.add_cross_entropy();
}

}  // namespace kiln::tools
