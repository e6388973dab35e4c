// What an operation launches, as data: the kernels with their parameters, chosen for a
// device and a shape, and the arguments they are given. A family's file makes one out
// of its argument struct; run.h starts it. So a plan can be looked at, and run on a
// CPU, without a service.

#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kiln/geometry.h"
#include "kiln/request.h"

namespace kiln::ops {

/// A kernel's arguments by value, in its own order.
class Arguments {
 public:
  Arguments() = default;
  template <typename... Types>
  explicit Arguments(Types... values) {
    (add(values), ...);
  }

  /// A pointer, or a scalar of exactly the parameter's type.
  template <typename Value>
  void add(Value value) {
    static_assert(std::is_pointer_v<Value> || std::is_arithmetic_v<Value>);
    static_assert(sizeof(Value) <= sizeof(Slot));
    Slot slot{};
    std::memcpy(slot.data(), &value, sizeof(Value));
    slots_.push_back(slot);
    sizes_.push_back(sizeof(Value));
  }

  /// Addresses of the values, as launches take them: good as long as nothing is added.
  [[nodiscard]] std::vector<void*> addresses() {
    std::vector<void*> all;
    all.reserve(slots_.size());
    for (Slot& slot : slots_) all.push_back(slot.data());
    return all;
  }
  [[nodiscard]] const std::vector<std::size_t>& sizes_bytes() const { return sizes_; }

 private:
  struct alignas(8) Slot : std::array<std::byte, 8> {};

  std::vector<Slot> slots_;
  std::vector<std::size_t> sizes_;
};

/// One launch. Kernel::geometry() makes the grid of `extents`.
struct Launch {
  std::string kernel;
  Parameters parameters;
  LaunchArguments extents;
  Arguments arguments;
  /// Of a kernel with several entry points, which one.
  std::string entry{};
};

/// In the order in which they go to the stream. Empty: there is nothing to compute.
using Plan = std::vector<Launch>;

}  // namespace kiln::ops
