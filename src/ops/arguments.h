// The arguments of a kernel, declared once, in the order of the kernel's text. The
// memory checks of an operation (check.h) and the values of a launch come from the same
// list.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kiln/ops/dtype.h"

namespace kiln::ops {

/// What an operation does with memory that its caller gave it.
enum class Access : std::uint8_t {
  kNone,  // a number, or memory that another argument declares
  kWrites,
  kWorkspace,
  kReads,
};

/// Why there is no bias, or no weight.
inline constexpr std::string_view kNoBias = "has_bias is false";
inline constexpr std::string_view kNoWeight = "has_weight is false";

struct Argument {
  std::string_view name;        // in the kernel's text
  std::uint64_t word = 0;       // the value
  std::size_t value_bytes = 0;  // 0: this variant of the kernel has no such argument

  Access access = Access::kNone;
  std::string_view label = {};  // in errors
  const void* begin = nullptr;
  std::uint64_t size_bytes = 0;  // accessed, from `begin` on
  std::size_t element_bytes = 1;
  /// Why the caller must pass null; empty: null is not required.
  std::string_view left_out = {};

  /// Unless `is_used`, the kernel gets null. If `else_because` gives a reason, such as
  /// "has_bias is false", the caller must pass null too.
  [[nodiscard]] Argument used_if(bool is_used,
                                 std::string_view else_because = {}) const {
    Argument changed = *this;
    if (!is_used) {
      changed.word = changed.size_bytes = 0;
      changed.left_out = else_because;
    }
    return changed;
  }
  /// Like used_if(), but unless `exists` this variant of the kernel has no such
  /// argument.
  [[nodiscard]] Argument exists_if(bool exists,
                                   std::string_view else_because = {}) const {
    Argument changed = used_if(exists, else_because);
    changed.value_bytes = exists ? value_bytes : 0;
    return changed;
  }
  /// The memory is checked, but not passed to the kernel.
  [[nodiscard]] Argument only_checked() const {
    Argument changed = *this;
    changed.value_bytes = 0;
    return changed;
  }
  /// For optional memory: null means that the caller does not want it.
  [[nodiscard]] Argument if_set() const { return used_if(begin != nullptr); }
  /// The kernel gets `pointer` instead of `begin`.
  [[nodiscard]] Argument given_as(const void* pointer) const {
    Argument changed = *this;
    changed.word = reinterpret_cast<std::uintptr_t>(pointer);
    return changed;
  }
};

/// A pointer, or a number of exactly the parameter's type.
template <typename Value>
[[nodiscard]] Argument value(std::string_view name, Value value) {
  static_assert(std::is_trivially_copyable_v<Value> &&
                sizeof(Value) <= sizeof(Argument::word));
  Argument argument{.name = name, .value_bytes = sizeof(Value)};
  std::memcpy(&argument.word, &value, sizeof(Value));
  return argument;
}

/// The accessed part of a tensor.
struct Elements {
  std::int64_t count;
  std::size_t bytes;  // each
};
[[nodiscard]] inline Elements floats(std::int64_t count) {
  return {count, sizeof(float)};
}

/// All elements of a [rows, cols] tensor of the operation's type.
template <typename Args>
[[nodiscard]] Elements elements_of(const Args& args) {
  return {args.rows * args.cols, size_bytes(args.dtype)};
}

/// `label` is the caller's name for it; empty: the same as the kernel's.
[[nodiscard]] inline Argument memory(Access access, std::string_view name,
                                     const void* begin, Elements touched,
                                     std::string_view label) {
  Argument argument = value(name, begin);
  argument.access = access;
  argument.label = label.empty() ? name : label;
  argument.begin = begin;
  argument.size_bytes = static_cast<std::uint64_t>(touched.count) * touched.bytes;
  argument.element_bytes = touched.bytes;
  return argument;
}
[[nodiscard]] inline Argument writes(std::string_view name, const void* begin,
                                     Elements written, std::string_view label = {}) {
  return memory(Access::kWrites, name, begin, written, label);
}
[[nodiscard]] inline Argument reads(std::string_view name, const void* begin,
                                    Elements read, std::string_view label = {}) {
  return memory(Access::kReads, name, begin, read, label);
}
/// A workspace of floats. All its bytes may be written. The kernel gets null unless
/// `is_needed`.
[[nodiscard]] inline Argument workspace(std::string_view name, const void* begin,
                                        std::uint64_t bytes, bool is_needed = true) {
  Argument argument = memory(Access::kWorkspace, name, begin, floats(0), "workspace");
  argument.size_bytes = std::max<std::uint64_t>(bytes, 1);
  return argument.used_if(is_needed);
}

using ArgumentLists = std::initializer_list<std::span<const Argument>>;

/// What a plan does with its pointers; prepare() has none.
class Pointers {
 public:
  static const Pointers kIgnored;
  static const Pointers kChecked;
  /// They are not checked; the arguments that would be are added to `list`.
  [[nodiscard]] static Pointers listed_in(std::vector<Argument>& list) {
    return Pointers(false, &list);
  }

  [[nodiscard]] bool are_checked() const { return are_checked_; }
  [[nodiscard]] std::vector<Argument>* list() const { return list_; }

 private:
  constexpr Pointers(bool are_checked, std::vector<Argument>* list)
      : are_checked_(are_checked), list_(list) {}

  bool are_checked_;
  std::vector<Argument>* list_;
};
inline constexpr Pointers Pointers::kIgnored{false, nullptr};
inline constexpr Pointers Pointers::kChecked{true, nullptr};

/// A kernel's arguments by value, in the kernel's order.
class Arguments {
 public:
  Arguments() = default;
  /// The arguments that the kernel has, list after list.
  Arguments(ArgumentLists lists) {
    std::size_t most = 0;
    for (const auto& list : lists) most += list.size();
    words_.reserve(most);
    places_.reserve(most);
    sizes_.reserve(most);
    names_.reserve(most);
    for (const auto& list : lists) {
      for (const Argument& argument : list) {
        if (argument.value_bytes == 0)
          continue;
        place(argument.name, argument.value_bytes);
        words_.push_back(argument.word);
      }
    }
  }

  /// A value of exactly the parameter's type, which may be of any size.
  template <typename Value>
  void add(std::string_view name, const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value> && alignof(Value) <= kAlignment);
    place(name, sizeof(Value));
    words_.resize(words_.size() + (sizeof(Value) + kAlignment - 1) / kAlignment);
    std::memcpy(&words_[places_.back()], &value, sizeof(Value));
  }

  /// The addresses of the values, for a launch, which modifies none. Valid until the
  /// next add().
  [[nodiscard]] std::vector<void*> addresses() const {
    std::vector<void*> all;
    all.reserve(places_.size());
    for (const std::size_t place : places_)
      all.push_back(const_cast<std::uint64_t*>(&words_[place]));
    return all;
  }
  [[nodiscard]] const std::vector<std::size_t>& sizes_bytes() const { return sizes_; }
  /// The bytes of all values; each begins at the word that places() has for it.
  [[nodiscard]] const std::vector<std::uint64_t>& words() const { return words_; }
  [[nodiscard]] const std::vector<std::size_t>& places() const { return places_; }

  [[nodiscard]] const std::vector<std::string_view>& names() const { return names_; }

 private:
  static constexpr std::size_t kAlignment = alignof(std::uint64_t);
  /// The next value begins where the words end.
  void place(std::string_view name, std::size_t size_bytes) {
    names_.push_back(name);
    places_.push_back(words_.size());
    sizes_.push_back(size_bytes);
  }

  std::vector<std::uint64_t> words_;  // the values; each begins at a new word
  std::vector<std::size_t> places_;
  std::vector<std::size_t> sizes_;
  std::vector<std::string_view> names_;
};

}  // namespace kiln::ops
