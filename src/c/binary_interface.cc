// What programs rely on that were compiled with an older kiln/c.h, or that pass its
// numbers on as those of C++.

#include "build/settings.h"
#include "c/handles.h"
#include "kiln/kiln.h"
#include "util/field_count.h"
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

static_assert(field_count<Statistics>() == 9, "kiln_statistics_get() names each");
static_assert(field_count<KernelAttributes>() == 6, "kiln_kernel_info() names each");

// Emulates recursion in the preprocessor: each of 27 scans expands KILN_EACH once.
#define KILN_EACH(what, Enum, pair, ...) \
  what(Enum, pair) __VA_OPT__(KILN_EACH_AGAIN KILN_PARENTHESES(what, Enum, __VA_ARGS__))
#define KILN_EACH_AGAIN() KILN_EACH
#define KILN_PARENTHESES ()
#define KILN_EXPAND(...) KILN_EXPAND_9(KILN_EXPAND_9(KILN_EXPAND_9(__VA_ARGS__)))
#define KILN_EXPAND_9(...) KILN_EXPAND_3(KILN_EXPAND_3(KILN_EXPAND_3(__VA_ARGS__)))
#define KILN_EXPAND_3(...) KILN_EXPAND_1(KILN_EXPAND_1(KILN_EXPAND_1(__VA_ARGS__)))
#define KILN_EXPAND_1(...) __VA_ARGS__

// KILN_SAME_ENUMERATORS(Enum, front, (in C++, in C)...): asserts that these are all
// enumerators of Enum, and that each has in C the same value, plus `front`.
#define KILN_SAME_ENUMERATORS(Enum, front, ...)                              \
  static_assert(are_enumerators_same<Enum>(                                  \
                    [](Enum value) -> int {                                  \
                      switch (value) {                                       \
                        KILN_EXPAND(KILN_EACH(KILN_CASE, Enum, __VA_ARGS__)) \
                      }                                                      \
                      return kNoEnumerator;                                  \
                    },                                                       \
                    front),                                                  \
                #Enum " has other values in C");
#define KILN_CASE(Enum, pair) \
  case Enum::KILN_FIRST pair: \
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
KILN_SAME_ENUMERATORS(SettingKind, 0, (kText, KILN_SETTING_TEXT),
                      (kPath, KILN_SETTING_PATH), (kPaths, KILN_SETTING_PATHS),
                      (kNames, KILN_SETTING_NAMES), (kNumbers, KILN_SETTING_NUMBERS),
                      (kNumber, KILN_SETTING_NUMBER), (kSwitch, KILN_SETTING_SWITCH),
                      (kSize, KILN_SETTING_SIZE), (kDuration, KILN_SETTING_DURATION))
KILN_SAME_ENUMERATORS(LogLevel, 0, (kDebug, KILN_LOG_DEBUG), (kInfo, KILN_LOG_INFO),
                      (kWarning, KILN_LOG_WARNING))
KILN_SAME_ENUMERATORS(ops::DType, 0, (kUnset, 0), (kF16, KILN_F16), (kBf16, KILN_BF16),
                      (kF32, KILN_F32))

// The structs with a size but those of operations (interface/c_interface.h): how many
// fields they have (elements of arrays count), and their bytes. A program passes the
// bytes of its version, padding included, and padding is not initialized. So a field
// that is added begins at the old size, aligned to 8 bytes: change its row, and add
// static_assert(offsetof(InC, field) == old bytes).
#define KILN_STRUCT(InC, fields, bytes)          \
  static_assert(field_count<InC>() == (fields)); \
  static_assert(sizeof(InC) == (bytes));
KILN_STRUCT(kiln_event, 8, 64)
KILN_STRUCT(kiln_options, 5, 40)
KILN_STRUCT(kiln_setting, 6, 48)
KILN_STRUCT(kiln_device, 10, 72)
KILN_STRUCT(kiln_source, 21, 168)
static_assert(offsetof(kiln_source, target) == 112);
KILN_STRUCT(kiln_file_request, 8, 64)
KILN_STRUCT(kiln_statistics, 10, 80)
static_assert(offsetof(kiln_statistics, seed_hits) == 64);
KILN_STRUCT(kiln_geometry, 18, 72)
KILN_STRUCT(kiln_kernel_attributes, 7, 48)

}  // namespace
}  // namespace kiln::c
