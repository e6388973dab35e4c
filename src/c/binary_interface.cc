// What programs rely on that were compiled with an older kiln/c.h, or that pass its
// numbers on as those of C++.

#include "build/settings.h"
#include "c/handles.h"
#include "c/same_fields.h"
#include "kiln/kiln.h"
#include "util/log.h"

#pragma GCC diagnostic error "-Wswitch"  // an enumerator that is not named here

namespace kiln::c {
namespace {

constexpr int kNoEnumerator = -1;

/// Whether `in_c` adds `front` to each enumerator.
template <typename Enum, typename InC>
consteval bool are_enumerators_same(InC in_c, int front) {
  constexpr int kMost = 256;  // of std::uint8_t
  for (int value = 0; value < kMost; ++value) {
    const int answer = in_c(static_cast<Enum>(value));
    if (answer != kNoEnumerator && answer != value + front)
      return false;
  }
  return true;
}

// KILN_SAME_ENUMERATORS(Enum, front, (in C++, in C)...): asserts that these are all
// enumerators of Enum, and that each has in C the same value, plus `front`.
#define KILN_SAME_ENUMERATORS(Enum, front, ...)                                 \
  static_assert(                                                                \
      are_enumerators_same<Enum>(                                               \
          [](Enum value) -> int {                                               \
            switch (value) {                                                    \
              KILN_EXPAND(KILN_EACH(KILN_CASE, Enum, Enum, front, __VA_ARGS__)) \
            }                                                                   \
            return kNoEnumerator;                                               \
          },                                                                    \
          front),                                                               \
      #Enum " has other values in C");
#define KILN_CASE(Enum, same_enum, front, pair) \
  case Enum::KILN_FIRST pair:                   \
    return KILN_SECOND pair;
#define KILN_FIRST(in_cpp, in_c) in_cpp
#define KILN_SECOND(in_cpp, in_c) in_c

constexpr int kCodesBeginAt = code_of(ErrorCode{});
KILN_SAME_ENUMERATORS(ErrorCode, kCodesBeginAt,
                      (kInvalidArgument, KILN_INVALID_ARGUMENT),
                      (kNotFound, KILN_NOT_FOUND),
                      (kCompileFailed, KILN_COMPILE_FAILED),
                      (kWorkerCrashed, KILN_WORKER_CRASHED), (kTimeout, KILN_TIMEOUT),
                      (kResourceLimit, KILN_RESOURCE_LIMIT),
                      (kCancelled, KILN_CANCELLED), (kCorrupt, KILN_CORRUPT),
                      (kUntrusted, KILN_UNTRUSTED), (kIo, KILN_IO),
                      (kUnavailable, KILN_UNAVAILABLE), (kDevice, KILN_DEVICE))
// The code that C alone has. An ErrorCode that is added must leave out its value.
static_assert(KILN_FORKED == code_of(ErrorCode::kDevice) + 1);

KILN_SAME_ENUMERATORS(Event::Kind, 0, (kHit, KILN_EVENT_HIT),
                      (kCompiled, KILN_EVENT_COMPILED), (kWaited, KILN_EVENT_WAITED),
                      (kNotStored, KILN_EVENT_NOT_STORED), (kLoaded, KILN_EVENT_LOADED),
                      (kFailed, KILN_EVENT_FAILED), (kSeed, KILN_EVENT_SEED),
                      (kRemote, KILN_EVENT_REMOTE))
KILN_SAME_ENUMERATORS(
    SettingKind, 0, (kText, KILN_SETTING_TEXT), (kPath, KILN_SETTING_PATH),
    (kPaths, KILN_SETTING_PATHS), (kNames, KILN_SETTING_NAMES),
    (kNumbers, KILN_SETTING_NUMBERS), (kNumber, KILN_SETTING_NUMBER),
    (kSwitch, KILN_SETTING_SWITCH), (kSize, KILN_SETTING_SIZE),
    (kDuration, KILN_SETTING_DURATION))
KILN_SAME_ENUMERATORS(LogLevel, 0, (kDebug, KILN_LOG_DEBUG), (kInfo, KILN_LOG_INFO),
                      (kWarning, KILN_LOG_WARNING))
KILN_SAME_ENUMERATORS(ops::DType, 0, (kUnset, 0), (kF16, KILN_F16), (kBf16, KILN_BF16),
                      (kF32, KILN_F32))
KILN_SAME_ENUMERATORS(ops::SoftmaxMask, 0, (kNone, KILN_SOFTMAX_NO_MASK),
                      (kBytes, KILN_SOFTMAX_MASK_BYTES), (kCausal, KILN_SOFTMAX_CAUSAL))
KILN_SAME_ENUMERATORS(ops::SoftmaxMaskedRow, 0, (kZero, KILN_SOFTMAX_MASKED_ROW_ZERO),
                      (kUniform, KILN_SOFTMAX_MASKED_ROW_UNIFORM))
KILN_SAME_ENUMERATORS(ops::RmsNormCasting, 0, (kNone, KILN_RMSNORM_CASTING_NONE),
                      (kLlama, KILN_RMSNORM_CASTING_LLAMA),
                      (kGemma, KILN_RMSNORM_CASTING_GEMMA))
KILN_SAME_ENUMERATORS(ops::ActivationKind, 0, (kUnset, 0), (kGeluTanh, KILN_GELU_TANH),
                      (kGeluErf, KILN_GELU_ERF), (kSquaredRelu, KILN_SQUARED_RELU))
KILN_SAME_ENUMERATORS(ops::GluKind, 0, (kUnset, 0), (kSwiGlu, KILN_SWIGLU),
                      (kGeGluTanh, KILN_GEGLU_TANH), (kGeGluErf, KILN_GEGLU_ERF),
                      (kReGlu, KILN_REGLU), (kClampedSwiGlu, KILN_CLAMPED_SWIGLU))
KILN_SAME_ENUMERATORS(ops::GluLayout, 0, (kPacked, KILN_GLU_PACKED),
                      (kSplit, KILN_GLU_SPLIT))
KILN_SAME_ENUMERATORS(ops::RopeStyle, 0, (kUnset, 0), (kHalf, KILN_ROPE_HALF),
                      (kInterleaved, KILN_ROPE_INTERLEAVED))
KILN_SAME_ENUMERATORS(ops::TargetType, 0, (kInt64, KILN_TARGETS_INT64),
                      (kInt32, KILN_TARGETS_INT32))
KILN_SAME_ENUMERATORS(ops::AttentionLayout, 0, (kBshd, KILN_BSHD), (kSbhd, KILN_SBHD),
                      (kBhsd, KILN_BHSD), (kThd, KILN_THD))
KILN_SAME_ENUMERATORS(
    ops::AttentionMask, 0, (kNone, KILN_MASK_NONE), (kCausal, KILN_MASK_CAUSAL),
    (kCausalBottomRight, KILN_MASK_CAUSAL_BOTTOM_RIGHT), (kPadding, KILN_MASK_PADDING),
    (kPaddingCausal, KILN_MASK_PADDING_CAUSAL),
    (kPaddingCausalBottomRight, KILN_MASK_PADDING_CAUSAL_BOTTOM_RIGHT))
KILN_SAME_ENUMERATORS(ops::AttentionBias, 0, (kNone, KILN_BIAS_NONE),
                      (kPostScale, KILN_BIAS_POST_SCALE), (kAlibi, KILN_BIAS_ALIBI))

// The structs with a size: how many fields they have (elements of arrays count), and
// their bytes. A program passes the bytes of its version, padding included, and padding
// is not initialized. So a field that is added begins at the old size, aligned to 8
// bytes: change its row, and add static_assert(offsetof(InC, field) == old bytes).
#define KILN_STRUCT(InC, fields, bytes)          \
  static_assert(field_count<InC>() == (fields)); \
  static_assert(sizeof(InC) == (bytes));
KILN_STRUCT(kiln_event, 8, 64)
KILN_STRUCT(kiln_options, 5, 40)
KILN_STRUCT(kiln_setting, 6, 48)
KILN_STRUCT(kiln_device, 10, 72)
KILN_STRUCT(kiln_source, 21, 168)
static_assert(offsetof(kiln_source, target) == 112);
KILN_STRUCT(kiln_statistics, 10, 80)
static_assert(offsetof(kiln_statistics, seed_hits) == 64);
KILN_STRUCT(kiln_geometry, 12, 56)
KILN_STRUCT(kiln_kernel_attributes, 7, 48)
KILN_STRUCT(kiln_softmax_forward_args, 13, 96)
static_assert(offsetof(kiln_softmax_forward_args, masked_row) == 88);
KILN_STRUCT(kiln_softmax_backward_args, 11, 80)
KILN_STRUCT(kiln_layernorm_forward_args, 18, 112)
static_assert(offsetof(kiln_layernorm_forward_args, has_weight) == 104);
KILN_STRUCT(kiln_layernorm_backward_args, 24, 152)
static_assert(offsetof(kiln_layernorm_backward_args, has_weight) == 128);
KILN_STRUCT(kiln_rmsnorm_forward_args, 16, 96)
static_assert(offsetof(kiln_rmsnorm_forward_args, has_weight) == 88);
KILN_STRUCT(kiln_rmsnorm_backward_args, 21, 128)
static_assert(offsetof(kiln_rmsnorm_backward_args, has_weight) == 112);
KILN_STRUCT(kiln_activation_forward_args, 9, 64)
KILN_STRUCT(kiln_activation_backward_args, 13, 96)
KILN_STRUCT(kiln_glu_forward_args, 16, 104)
KILN_STRUCT(kiln_glu_backward_args, 22, 152)
KILN_STRUCT(kiln_rope_forward_args, 13, 304)
KILN_STRUCT(kiln_cross_entropy_args, 17, 128)
KILN_STRUCT(kiln_cross_entropy_forward_args, 14, 112)
KILN_STRUCT(kiln_cross_entropy_backward_args, 16, 120)
KILN_STRUCT(kiln_attention_args, 6, 464)
static_assert(offsetof(kiln_attention_args, tokens_q) == 448);
// Those without a size, which never change.
KILN_STRUCT(kiln_rope_strides, 4, 32)
KILN_STRUCT(kiln_rope_tensor, 5, 88)
KILN_STRUCT(kiln_rope_table, 7, 56)
KILN_STRUCT(kiln_attention_strides, 5, 40)
KILN_STRUCT(kiln_attention_problem, 18, 272)
KILN_STRUCT(kiln_attention_options, 4, 4)
KILN_STRUCT(kiln_attention_tensors, 21, 160)

}  // namespace
}  // namespace kiln::c
