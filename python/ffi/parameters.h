// The functions of operations: what Python gives, by name. A function is called with
// the action, the device, and a value for each of its names, in their order, which
// parameters() tells Python when it is imported.

#pragma once

#include <tvm/ffi/tvm_ffi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kiln/c.h"

namespace kiln::python {

using tvm::ffi::Any;
using tvm::ffi::AnyView;
using tvm::ffi::Array;
using tvm::ffi::Optional;
using tvm::ffi::String;
using tvm::ffi::TensorView;

/// The values of one call, taken one after the other.
class Given {
 public:
  Given(const char* function, const AnyView* values)
      : function_(function), next_(values) {}

  /// Throws a TypeError that names the parameter.
  template <typename Value>
  Value take(const char* name) {
    const AnyView value = *next_++;
    if (auto found = value.try_cast<Value>())
      return *std::move(found);
    throw tvm::ffi::Error("TypeError",
                          std::string(function_) + ": " + name + " is of the type " +
                              value.GetTypeKey() + ", and not " +
                              tvm::ffi::TypeTraits<Value>::TypeStr(),
                          "");
  }
  /// A tensor to write: one without elements is not wanted, as None is.
  Optional<TensorView> take_output(const char* name) {
    auto tensor = take<Optional<TensorView>>(name);
    return tensor && tensor.value().numel() == 0 ? std::nullopt : std::move(tensor);
  }

 private:
  const char* function_;
  const AnyView* next_;
};

/// The functions of kiln/c.h for one operation.
template <typename Arguments>
struct Operation {
  const char* name;
  Arguments initial;  // KILN_..._INIT
  kiln_result (*launch)(kiln_service*, int, kiln_stream, const Arguments*);
  kiln_result (*prepare)(kiln_service*, int, const Arguments*);
  kiln_result (*workspace)(kiln_service*, int, const Arguments*,
                           std::uint64_t*) = nullptr;
};
template <typename Arguments>
extern const Operation<Arguments> kOperation;

/// Of an operation's C struct, what Python gives: a member for each tensor and each
/// option, kNames, set_options() and set_tensors(), which set the struct's fields. An
/// option that is None has the default of the header. python/operation_parameters.h,
/// which follows from the headers of kiln/ops, has them.
template <typename Arguments>
struct Parameters;

/// Of an operation that takes several structs.
template <typename... Structs>
struct JoinedParameters : Parameters<Structs>... {
  explicit JoinedParameters(Given& given) : Parameters<Structs>(given)... {}
  template <typename... Args>
  void set_options(Args&... args) const {
    (Parameters<Structs>::set_options(args), ...);
  }
  static constexpr auto kNames = [] {
    std::array<const char*, (Parameters<Structs>::kNames.size() + ...)> all{};
    auto next = all.begin();
    ((next = std::ranges::copy(Parameters<Structs>::kNames, next).out), ...);
    return all;
  }();
};

/// Tells Python the names of the values that a function takes behind action and device.
void add_function(const char* function, std::vector<const char*> names);

}  // namespace kiln::python
