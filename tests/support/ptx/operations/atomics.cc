// PTX ISA, "Parallel Synchronization and Communication Instructions": atom and red. A
// launch has one thread, so each is atomic by itself; which lane comes first is the
// schedule's.

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/support/ptx/memory.h"
#include "tests/support/ptx/numbers.h"
#include "tests/support/ptx/operations/elementwise.h"

namespace kiln::ptx {
namespace {

struct Add {
  template <typename T>
  T operator()(T old, T value, T) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<Wrapping<T>>(old) +
                            static_cast<Wrapping<T>>(value));
    else if constexpr (std::is_same_v<T, float>)
      return canonical(old + value);
    else if constexpr (std::is_same_v<T, double>)
      return value != value ? value : old != old ? old : with_nan(old + value);
    else
      return from_float<T>(to_float(old) + to_float(value));
  }
};
struct Least {
  template <typename T>
  T operator()(T old, T value, T) const {
    if constexpr (std::is_arithmetic_v<T>)
      return std::min(old, value);
    else
      return from_float<T>(std::fmin(to_float(old), to_float(value)));
  }
};
struct Greatest {
  template <typename T>
  T operator()(T old, T value, T) const {
    if constexpr (std::is_arithmetic_v<T>)
      return std::max(old, value);
    else
      return from_float<T>(std::fmax(to_float(old), to_float(value)));
  }
};
using Increment = decltype([]<typename T>(T old, T limit, T) -> T {
  return old >= limit ? T{0} : static_cast<T>(old + 1);
});
using Decrement = decltype([]<typename T>(T old, T limit, T) -> T {
  return old == 0 || old > limit ? limit : static_cast<T>(old - 1);
});
using And = decltype([]<typename T>(T old, T value, T) -> T { return old & value; });
using Or = decltype([]<typename T>(T old, T value, T) -> T { return old | value; });
using Xor = decltype([]<typename T>(T old, T value, T) -> T { return old ^ value; });
using Exchange = decltype([]<typename T>(T, T value, T) -> T { return value; });
using CompareAndSwap = decltype([]<typename T>(T old, T expected, T value) -> T {
  return old == expected ? value : old;
});

// Operands: the address, the old value (or dropped), b, c (or b once more). kElements
// of T a lane. A sum of floats flushes subnormals, except in shared memory.
template <typename F, typename T, unsigned kElements>
void update(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const std::size_t bytes = sizeof(T) * kElements;
  const Reach reached = reach(lanes, instruction, operands[0], bytes, Access::kAtomic);
  const T* const b = lanes.at<T>(operands[2]);
  const T* const c = lanes.at<T>(operands[3]);
  T* const to = operands[1].is_dropped() ? nullptr : lanes.at<T>(operands[1]);
  in_some_order(lanes, [&](unsigned lane) {
    std::array<T, kElements> old;
    std::memcpy(old.data(), reached.at[lane], bytes);
    std::array<T, kElements> changed;
    const bool flushes = std::is_same_v<F, Add> && std::is_same_v<T, float> &&
                         !lanes.block->has(reached.at[lane]);
    const auto flush = [&](T value) {
      if constexpr (std::is_same_v<T, float>)
        return flushes ? flushed(value) : value;
      else
        return value;
    };
    for (unsigned i = 0; i < kElements; ++i)
      changed[i] = flush(
          F{}(flush(old[i]), flush(b[kElements * lane + i]), c[kElements * lane + i]));
    std::memcpy(reached.at[lane], changed.data(), bytes);
    for (unsigned i = 0; to != nullptr && i < kElements; ++i)
      to[kElements * lane + i] = old[i];
  });
}

// red.v2.f32 and its like: a register for each element.
template <typename F, typename T, unsigned kElements>
void update_vector(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const std::size_t registers = (operands.size() - 1) / 2;
  const std::size_t bytes = sizeof(T) * kElements;
  const Reach reached =
      reach(lanes, instruction, operands[0], bytes * registers, Access::kAtomic);
  in_some_order(lanes, [&](unsigned lane) {
    for (std::size_t i = 0; i < registers; ++i) {
      const T* const from = lanes.at<T>(operands[1 + registers + i]);
      const Operand& to = operands[1 + i];
      for (unsigned element = 0; element < kElements; ++element) {
        std::byte* const at = reached.at[lane] + i * bytes + element * sizeof(T);
        T old;
        std::memcpy(&old, at, sizeof old);
        const T value = from[kElements * lane + element];
        const T changed = F{}(old, value, value);
        std::memcpy(at, &changed, sizeof changed);
        if (!to.is_dropped())
          lanes.at<T>(to)[kElements * lane + element] = old;
      }
    }
  });
}

template <typename F>
Handler integer_update(Type type) {
  const bool is_signed = type.kind == Kind::kSigned;
  switch (type.bits) {
    case 16:
      return &update<F, std::uint16_t, 1>;
    case 32:
      return is_signed ? &update<F, std::int32_t, 1> : &update<F, std::uint32_t, 1>;
    case 64:
      return is_signed ? &update<F, std::int64_t, 1> : &update<F, std::uint64_t, 1>;
    default:
      return nullptr;
  }
}
template <typename F>
Handler any_update(Type type, bool is_vector) {
  if (type.is_integer())
    return is_vector ? nullptr : integer_update<F>(type);
  const bool is_pair = type.count == 2;
  if (type.kind == Kind::kBfloat)
    return is_vector
               ? is_pair ? &update_vector<F, Bfloat, 2> : &update_vector<F, Bfloat, 1>
           : is_pair ? &update<F, Bfloat, 2>
                     : &update<F, Bfloat, 1>;
  if (type.bits == 16)
    return is_vector ? is_pair ? &update_vector<F, Half, 2> : &update_vector<F, Half, 1>
           : is_pair ? &update<F, Half, 2>
                     : &update<F, Half, 1>;
  if (type.bits == 32)
    return is_vector ? &update_vector<F, float, 1> : &update<F, float, 1>;
  return is_vector ? nullptr : &update<F, double, 1>;
}

template <typename F>
Handler any_integer_update(Type type, bool is_vector) {
  return is_vector || !type.is_integer() ? nullptr : integer_update<F>(type);
}

struct Update {
  std::string_view name;
  Handler (*handler)(Type, bool is_vector);  // null: this type has none
};
constexpr auto kUpdates = std::to_array<Update>({
    {"add", &any_update<Add>},
    {"min", &any_update<Least>},
    {"max", &any_update<Greatest>},
    {"inc", &any_integer_update<Increment>},
    {"dec", &any_integer_update<Decrement>},
    {"and", &any_integer_update<And>},
    {"or", &any_integer_update<Or>},
    {"xor", &any_integer_update<Xor>},
    {"exch", &any_integer_update<Exchange>},
    {"cas", &any_integer_update<CompareAndSwap>},
});

void select_update(Decoder& decoder) {
  const bool has_result = decoder.statement().opcode == "atom";
  decoder.take_hints();
  const Space space = decoder.take_space();
  const auto update = std::ranges::find_if(
      kUpdates, [&](const Update& each) { return decoder.take(each.name); });
  decoder.take("noftz");  // which sums of 16 bits never do
  const bool is_vector = decoder.take_one({"v2", "v4", "v8"}).has_value();
  const Type type = decoder.take_type();
  auto& made = decoder.made;
  made.space = space;
  const std::size_t first = has_result ? 1 : 0;
  decoder.address(decoder.argument(first), made.space);
  const auto& value = decoder.argument(first + 1);
  if (is_vector) {
    const auto parts = decoder.parts(value);
    if (has_result && decoder.parts(decoder.argument(0)).size() != parts.size())
      decoder.refuse("it has not as many results as values");
    for (std::size_t i = 0; i < parts.size(); ++i)
      made.operands.push_back(
          has_result ? decoder.destination(decoder.parts(decoder.argument(0))[i], type)
                     : Operand{});
    for (const auto& part : parts) made.operands.push_back(decoder.source(part, type));
  } else {
    made.operands.push_back(has_result ? decoder.destination(decoder.argument(0), type)
                                       : Operand{});
    made.operands.push_back(decoder.source(value, type));
    const bool swaps = update != kUpdates.end() && update->name == "cas";
    made.operands.push_back(
        decoder.source(decoder.argument(first + (swaps ? 2 : 1)), type));
  }
  decoder.run_by(update == kUpdates.end() ? nullptr : update->handler(type, is_vector));
}

}  // namespace

std::span<const Operation> atomic_operations() {
  static constexpr auto kAll =
      std::to_array<Operation>({{"atom", &select_update}, {"red", &select_update}});
  return kAll;
}

}  // namespace kiln::ptx
