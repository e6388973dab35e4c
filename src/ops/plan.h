// What an operation launches, as data: the kernels with their parameters, chosen for a
// device and a shape, and the arguments they are given. A family's file makes one out
// of its argument struct; run.h starts it. So a plan can be looked at, and run on a
// CPU, without a service.

#pragma once

#include <cstddef>
#include <cstdint>
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

  /// A pointer, or a value of exactly the parameter's type.
  template <typename Value>
  void add(Value value) {
    static_assert(std::is_trivially_copyable_v<Value> && alignof(Value) <= kAlignment);
    places_.push_back(words_.size());
    sizes_.push_back(sizeof(Value));
    words_.resize(words_.size() + (sizeof(Value) + kAlignment - 1) / kAlignment);
    std::memcpy(&words_[places_.back()], &value, sizeof(Value));
  }

  /// Addresses of the values, as launches take them, which change none: good as long as
  /// nothing is added.
  [[nodiscard]] std::vector<void*> addresses() const {
    std::vector<void*> all;
    all.reserve(places_.size());
    for (const std::size_t place : places_)
      all.push_back(const_cast<std::uint64_t*>(&words_[place]));
    return all;
  }
  [[nodiscard]] const std::vector<std::size_t>& sizes_bytes() const { return sizes_; }

 private:
  static constexpr std::size_t kAlignment = alignof(std::uint64_t);

  std::vector<std::uint64_t> words_;  // of the values, each from a word of its own on
  std::vector<std::size_t> places_;
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
