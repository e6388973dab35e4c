// The calls that a thread has made. A call that differs from one of them in its
// addresses alone needs no plan, no look-up of kernels and no grid: its addresses are
// written among the arguments that are kept here. It knows no operation.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "device/function.h"
#include "kiln/geometry.h"
#include "kiln/result.h"
#include "kiln/service.h"
#include "ops/arguments.h"
#include "ops/on_device.h"
#include "ops/operation_table.h"
#include "ops/plan.h"
#include "ops/run.h"
#include "util/try.h"

namespace kiln::ops {

/// A call, apart: its addresses, and the bytes of all else, with 1 for an address and 0
/// for null.
template <typename Args>
class CallParts {
 public:
  CallParts(std::uint64_t service, const Place& place, const Args& args) {
    static_assert(std::is_trivially_copyable_v<Args>);
    const char* const operation = place.operation.data();  // a literal
    const std::int64_t device = place.device.ordinal;
    char* end = bytes_.data();
    const auto append = [&end](const auto& value) {
      std::memcpy(end, &value, sizeof value);
      end += sizeof value;
    };
    append(service);
    append(operation);
    append(device);
    char* const copy = end;
    Args without_gaps = args;
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&without_gaps);  // else equal calls may have other bytes
#endif
    append(without_gaps);
    for_each_pointer(args, [&](const auto& pointer) {
      const auto address = reinterpret_cast<std::uintptr_t>(pointer);
      const std::uintptr_t is_set = address != 0 ? 1 : 0;
      const auto offset = reinterpret_cast<const char*>(&pointer) -
                          reinterpret_cast<const char*>(&args);
      std::memcpy(copy + offset, &is_set, sizeof is_set);
      addresses_.at(count_++) = address;
    });
  }

  [[nodiscard]] std::string_view bytes() const {
    return {bytes_.data(), bytes_.size()};
  }
  [[nodiscard]] std::span<const std::uintptr_t> addresses() const {
    return std::span(addresses_).first(count_);
  }

 private:
  std::array<char, 3 * sizeof(std::uint64_t) + sizeof(Args)> bytes_;
  std::array<std::uintptr_t, sizeof(Args) / sizeof(void*)> addresses_;
  std::size_t count_ = 0;
};

/// A plan, and the memory that it would check.
struct ListedPlan {
  Launches launches;
  std::vector<Argument> memory;
};

template <typename Args>
[[nodiscard]] Result<ListedPlan> listed_plan(const Args& args, const Device& device) {
  ListedPlan made;
  made.launches = KILN_TRY(plan(args, device, Pointers::listed_in(made.memory)));
  return made;
}

/// By how much moved() moves the pointer with that number. No sum of an address and a
/// size of memory is so far away. The distance is odd, so an aligned pointer becomes
/// misaligned: if a plan depends on alignment, the two plans differ, and the call is
/// not kept.
[[nodiscard]] constexpr std::uint64_t distance_of(std::size_t pointer) {
  return ((pointer + 1) << 48U) + 1;
}

/// The same call with other addresses, which stand for no memory. Null stays null.
template <typename Args>
[[nodiscard]] Args moved(Args args) {
  std::size_t count = 0;
  for_each_pointer(args, [&count](auto*& pointer) {
    const std::uint64_t distance = distance_of(count++);
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(
        address == 0 ? 0 : address + distance);
  });
  return args;
}

/// Thread safety: immutable.
class KnownCall {
 public:
  /// `once` is the plan of a call that `launched` this, `moved` that of moved().
  /// nullopt: the plans differ in more than addresses, or are too large; or a kernel is
  /// not kept by the service.
  [[nodiscard]] static std::optional<KnownCall> of(
      Service& service, std::span<const std::uintptr_t> addresses,
      const ListedPlan& once, const ListedPlan& moved,
      const std::vector<Launched>& launched);

  /// Whether check_memory() surely accepts these addresses: false sends a call to it.
  [[nodiscard]] bool accepts(std::span<const std::uintptr_t> addresses) const;
  /// Their context is current, and `stream` belongs to it. Errors: kDevice.
  [[nodiscard]] Result<void> launch(Service& service, CUstream_st* stream,
                                    std::span<const std::uintptr_t> addresses) const;

 private:
  struct Word {
    std::size_t at;
    std::size_t pointer;  // whose address is added to it
  };
  struct Ready {
    const device::Function* function;  // of a kernel that the service keeps
    Geometry geometry;
    std::vector<std::uint64_t> words;  // the arguments, without addresses
    std::vector<Word> moved;
    std::vector<std::size_t> places;  // where in `words` each argument begins
  };
  struct Memory {
    std::size_t pointer;
    std::uint64_t offset;  // from its address
    std::uint64_t size_bytes;
    std::uint64_t misaligned;  // the bits that no address has
    bool is_written;
  };

  KnownCall() = default;
  [[nodiscard]] bool add(const Launch& once, const Launch& moved,
                         const Launched& launched,
                         std::span<const std::uintptr_t> addresses);
  [[nodiscard]] bool add(const Argument& once, const Argument& moved,
                         std::span<const std::uintptr_t> addresses);

  std::vector<Memory> memory_;
  std::vector<Ready> launches_;
};

/// The calls of the calling thread, by CallParts::bytes(); recent ones take the place
/// of others. Those of a service that is closed stay, but nobody finds them.
class KnownCalls {
 public:
  /// Null: not known. Valid until the thread calls should_add() or add().
  [[nodiscard]] static const KnownCall* find(std::string_view call);
  /// Whether the call was asked about before, and not added: most sizes come once or
  /// very often.
  [[nodiscard]] static bool should_add(std::string_view call);
  /// nullopt: it cannot be known.
  static void add(std::string_view call, std::optional<KnownCall> known);
};

}  // namespace kiln::ops
