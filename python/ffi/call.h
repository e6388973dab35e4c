// What every function of the module has in common: the process's one service, errors of
// kiln/c.h as Python exceptions, waits that Ctrl-C ends, and the check of tensors.
//
//   tensors ─ Call ─┬─ kLaunch   what is not loaded: prepare, and launch again
//                   └─ kPrepare

#pragma once

#include <tvm/ffi/tvm_ffi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "action.h"
#include "kiln/c.h"
#include "parameters.h"

// The _INIT macros leave to C what is zero, of which C++ warns.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace kiln::python {

/// Throws the error as `kiln.<Class>`, which kiln/errors.py maps to its classes; NULL
/// is success. A compile failure is `kiln.CompileFailed+log`: its message begins with
/// the number of bytes before the compiler's log, and a newline.
void check(kiln_result failed);
/// Throws kiln.InvalidArgument.
[[noreturn]] void refuse(const std::string& message);

/// The service of this process, opened by the first call. Thread-safe.
kiln_service* service();

/// The device of the tensor, by CUDA ordinal. If use_cpu_device() named one, the CPU's
/// memory is on that, and on the following ones if a framework divides it into devices,
/// as JAX can. Throws kiln.InvalidArgument.
DLDevice device_of(const char* name, const TensorView& tensor);

/// Throws kiln.InvalidArgument for memory that kernels on the device cannot use.
void expect_memory_of(int device, const char* name, const void* address);

/// Throws kiln.ForkError in a child of a process that had used its service. There a
/// lock may be held for ever, and the driver does not work.
void check_not_forked();

/// Runs `body`, which may take as long as a build. In Python's main thread it runs in a
/// thread of its own, so that a signal handler which raises, as that of Ctrl-C does,
/// ends the call within 50 ms; `cancel` is requested then, and `body` is left to end by
/// itself. Owns what `body` captures: it must capture by value.
void run_interruptibly(std::function<kiln_result()> body,
                       kiln_cancel* cancel = nullptr);

inline constexpr DLDataType kFloat32{kDLFloat, 32, 1};
inline constexpr DLDataType kInt32{kDLInt, 32, 1};
inline constexpr DLDataType kInt64{kDLInt, 64, 1};
inline constexpr DLDataType kByte{kDLUInt, 8, 1};  // for fit(): any type of one byte
/// No bits: not known.
DLDataType type_of(kiln_dtype dtype);

/// A tensor by whose shape others are checked.
struct KnownShape {
  const char* name = nullptr;
  const TensorView* tensor = nullptr;
};

/// The part of a call that does not depend on the operation: checks tensors, and finds
/// the device that they are on, if `device` is -1. Else it is the CUDA ordinal, and
/// only shapes, strides and types of tensors count: such a call is no kLaunch.
class Tensors {
 public:
  Tensors(std::int64_t action, std::int64_t device);

  /// The address of the tensor, which must be contiguous and on the call's device.
  void* data(const char* name, const TensorView& tensor);
  /// The elements from one row of [..., columns] to the next: the same between all
  /// rows, which must not overlap; columns must be contiguous.
  std::int64_t row_stride(const char* name, const TensorView& tensor);
  /// As data(), with any strides.
  void* strided(const char* name, const TensorView& tensor);

  /// Checks a tensor, if it is given: `shape` is a tensor of the same type and extents;
  /// the first of them needs as many elements as the extents say.
  static void fit(const char* name, const Optional<TensorView>& tensor, DLDataType type,
                  std::initializer_list<std::int64_t> extents, KnownShape& shape);

  /// KILN_F16, KILN_BF16 or KILN_F32.
  static kiln_dtype dtype(const char* name, const TensorView& tensor);
  static void expect_dtype(const char* name, const TensorView& tensor, DLDataType type);
  static void expect_rank(const char* name, const TensorView& tensor, int rank);
  static void expect_elements(const char* name, const TensorView& tensor,
                              std::int64_t count);
  /// The type and the shape of the other; dimension `free` may differ.
  static void expect_like(const char* name, const TensorView& tensor,
                          const char* other_name, const TensorView& other,
                          int free = -1);

  [[nodiscard]] Action action() const { return action_; }
  [[nodiscard]] bool is_from_xla() const { return is_from_xla_; }
  /// The tensors of kTellNotContiguous.
  [[nodiscard]] const std::vector<std::string_view>& gaps() const { return gaps_; }
  [[nodiscard]] int device() const { return static_cast<int>(device_.device_id); }
  /// The framework's current stream of that device.
  [[nodiscard]] kiln_stream stream() const;

 private:
  void tell_gap(const char* name);

  Action action_;
  bool is_from_xla_;
  bool tells_gaps_;  // kTellNotContiguous
  std::vector<std::string_view> gaps_;
  bool has_stand_ins_;  // the device is given, and the tensors need not be there
  bool has_device_;
  DLDevice device_;
};

/// Takes KILN_NOT_FOUND, of what is not loaded; throws any other error as check(), and
/// kiln.InvalidArgument if the stream is being captured, where nothing can be prepared.
void expect_preparable(kiln_result missing, const char* operation, int device,
                       kiln_stream stream);

/// A call of one operation. Set `args`, pointers through set(); then run().
template <typename Arguments>
class Call : public Tensors {
 public:
  Call(const Operation<Arguments>& operation, std::int64_t action, std::int64_t device)
      : Tensors(action, device), args(operation.initial), operation_(operation) {}

  /// Sets a pointer of `args` to a contiguous tensor.
  template <typename Pointer>
  void set(Pointer*& field, const char* name, const TensorView& tensor) {
    field = static_cast<Pointer*>(data(name, tensor));
  }
  template <typename Pointer>
  bool set(Pointer*& field, const char* name, const Optional<TensorView>& tensor) {
    if (tensor)
      set(field, name, *tensor);
    return tensor.has_value();
  }
  /// The same, checked as fit() does.
  template <typename Pointer>
  void set(Pointer*& field, const char* name, const Optional<TensorView>& tensor,
           DLDataType type, std::initializer_list<std::int64_t> extents,
           KnownShape& shape) {
    fit(name, tensor, type, extents, shape);
    set(field, name, tensor);
  }
  template <typename Pointer>
  void set_strided(Pointer*& field, const char* name, const TensorView& tensor) {
    field = static_cast<Pointer*>(strided(name, tensor));
  }

  /// Refuses a tensor that is given, and that nobody has set.
  static void expect_set(const void* field, const char* name,
                         const Optional<TensorView>& tensor) {
    if (tensor && field == nullptr && tensor.value().numel() > 0)
      refuse(std::string(name) + " is given, and python/ffi does not set it");
  }

  /// run() with sizes and types set: checks and sets all tensors that are left.
  std::int64_t run(const Parameters<Arguments>& given) {
    given.set_tensors(*this);
    if constexpr (requires { given.workspace; })
      return run(args, given.workspace);
    else
      return run();
  }

  /// Returns 0, or which tensors are not contiguous.
  std::int64_t run() {
    if (!gaps().empty())
      return -places_of(gaps());
    kiln_service* const on = service();
    if (action() == Action::kPrepare) {
      prepare(on);
      // This thread has then what it must have before it captures.
      check(operation_.prepare(on, device(), &args));
      return 0;
    }
    with_prepared(
        on, [this, on] { return operation_.launch(on, device(), stream(), &args); });
    return 0;
  }

  /// run() of an operation that may need device scratch memory; `part` of `args` has
  /// its fields. A launch that needs some and is given none launches nothing, and
  /// returns the bytes.
  template <typename Part>
  std::int64_t run(Part& part, const Optional<TensorView>& workspace) {
    if (action() == Action::kPrepare || !gaps().empty())
      return run();
    if (workspace) {
      set(part.workspace, "workspace", *workspace);
      part.workspace_bytes = static_cast<std::uint64_t>(workspace.value().numel());
      return run();
    }
    kiln_service* const on = service();
    std::uint64_t bytes = 0;
    with_prepared(on,
                  [&] { return operation_.workspace(on, device(), &args, &bytes); });
    return bytes > 0 ? static_cast<std::int64_t>(bytes) : run();
  }

  Arguments args;

 private:
  static std::int64_t places_of(const std::vector<std::string_view>& tensors) {
    const auto& names = Parameters<Arguments>::kNames;
    std::int64_t places = 0;
    for (std::size_t i = 0; i < names.size(); ++i)
      if (std::ranges::find(tensors, names[i]) != tensors.end())
        places |= std::int64_t{1} << i;
    if (places == 0)
      refuse(std::string(tensors.front()) + " is not contiguous");
    return places;
  }
  /// Prepares the call if `use` needs what is not loaded.
  template <typename Use>
  void with_prepared(kiln_service* on, const Use& use) {
    const bool before = kiln_use_only_loaded(true);
    const kiln_result missing = use();
    kiln_use_only_loaded(before);
    if (missing == nullptr)
      return;
    expect_preparable(missing, operation_.name, device(), stream());
    prepare(on);
    check(use());
  }
  /// XLA can be interrupted nowhere: what comes next prepares.
  void prepare(kiln_service* on) {
    if (!is_from_xla())
      run_interruptibly([operation = operation_, on, where = device(), copy = args] {
        return operation.prepare(on, where, &copy);
      });
  }

  const Operation<Arguments>& operation_;
};

/// Throws kiln.InvalidArgument where there is none.
const TensorView& needed(const char* name, const Optional<TensorView>& tensor);

/// Calls `body` with the options set. It may take `more`, the values of the names that
/// the C struct has not.
template <typename Value, typename Arguments, typename... More>
Value call_operation(const char* function,
                     Value (*body)(Call<Arguments>&, const Parameters<Arguments>&,
                                   More&... more),
                     const AnyView* values, std::size_t count, std::size_t expected) {
  if (count != expected)
    refuse(std::string(function) + " takes " + std::to_string(expected) +
           " values, and " + std::to_string(count) + " are given");
  Given given(function, values);
  const auto action = given.take<std::int64_t>("action");
  const auto device = given.take<std::int64_t>("device");
  const Parameters<Arguments> parameters(given);
  Call<Arguments> call(kOperation<Arguments>, action, device);
  parameters.set_options(call.args);
  if constexpr (sizeof...(More) == 0)
    return body(call, parameters);
  else
    return body(call, parameters, given);
}

/// Returns how many values the function takes.
template <typename Value, typename Arguments, typename... More>
std::size_t add_operation(const char* function,
                          Value (*)(Call<Arguments>&, const Parameters<Arguments>&,
                                    More&...),
                          std::initializer_list<const char*> more) {
  const auto& own = Parameters<Arguments>::kNames;
  std::vector<const char*> names(own.begin(), own.end());
  names.insert(names.end(), more);
  const std::size_t count = 2 + names.size();
  add_function(function, std::move(names));
  return count;
}

// KILN_PYTHON_FUNCTION(rope_forward, run<Forward>, "layout"): the function rope_forward
// for Python, which calls run<Forward>(). Its values are the action, the device, the
// tensors and the options of kiln_rope_forward_args, and "layout".
#define KILN_PYTHON_FUNCTION(function, body, ...)                                 \
  static const std::size_t function##_values =                                    \
      add_operation(#function, body, {__VA_ARGS__});                              \
  extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_##function(                         \
      void*, const TVMFFIAny* values, std::int32_t count, TVMFFIAny* result) {    \
    TVM_FFI_SAFE_CALL_BEGIN();                                                    \
    *reinterpret_cast<Any*>(result) =                                             \
        call_operation(#function, body, reinterpret_cast<const AnyView*>(values), \
                       static_cast<std::size_t>(count), function##_values);       \
    TVM_FFI_SAFE_CALL_END();                                                      \
  }

}  // namespace kiln::python
