// XLA's custom calls as calls of libkiln_ffi.so. Which function is called, and with
// what, is the attribute "call", which kiln/jax/_call.py writes:
//
//   softmax_forward r0 a0 d0.5 i1 n n
//
// The words are the values in the order of parameters() of python/ffi: rI is result I,
// aI is argument I, n is None, t and f are truth values, i-1 is an
// integer, d0.5 a real number, sbshd a text, and w scratch memory, as much as the
// function asks for.

#include <dlfcn.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>
#include <xla/ffi/api/ffi.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <vector>

#include "python/ffi/action.h"

namespace ffi = ::xla::ffi;

namespace kiln::python {

using Function = int (*)(void*, const TVMFFIAny*, std::int32_t, TVMFFIAny*);

namespace {

using tvm::ffi::AnyView;

constexpr std::size_t kMostDimensions = 8;
constexpr std::size_t kWorkspaceAlignment = 256;
constexpr std::size_t kXlaAlignment = 16;  // XLA refuses to allocate for a greater one

[[noreturn]] void refuse(const std::string& message) {
  throw tvm::ffi::Error("kiln.InvalidArgument", message, "");
}

/// The symbol that KILN_PYTHON_FUNCTION of python/ffi makes.
Function function_of(std::string_view name) {
  const std::string symbol = "__tvm_ffi_" + std::string(name);
  void* const found = ::dlsym(RTLD_NEXT, symbol.c_str());
  if (found == nullptr)
    refuse("libkiln_ffi.so has no function " + std::string(name));
  return reinterpret_cast<Function>(found);
}

// ---- Errors

struct Code {
  std::string_view kind;
  ffi::ErrorCode code;
};
constexpr std::array kCodes{
    Code{"kiln.InvalidArgument", ffi::ErrorCode::kInvalidArgument},
    Code{"kiln.NotFound", ffi::ErrorCode::kNotFound},
    Code{"kiln.Timeout", ffi::ErrorCode::kDeadlineExceeded},
    Code{"kiln.ResourceLimit", ffi::ErrorCode::kResourceExhausted},
    Code{"kiln.Cancelled", ffi::ErrorCode::kCancelled},
    Code{"kiln.Corrupt", ffi::ErrorCode::kDataLoss},
    Code{"kiln.Untrusted", ffi::ErrorCode::kPermissionDenied},
    Code{"kiln.Unavailable", ffi::ErrorCode::kUnavailable},
    Code{"kiln.ForkError", ffi::ErrorCode::kFailedPrecondition}};

// "kiln.NotFound: ..." with XLA's code; the other classes are its INTERNAL.
ffi::Error error_of(const tvm::ffi::Error& error) {
  std::string kind = error.kind();
  std::string message = error.message();
  if (kind == "kiln.CompileFailed+log") {  // see check() in python/ffi
    kind = "kiln.CompileFailed";
    message.erase(0, message.find('\n') + 1);
  }
  ffi::ErrorCode code = ffi::ErrorCode::kInternal;
  for (const Code& each : kCodes)
    if (each.kind == kind)
      code = each.code;
  return ffi::Error(code, kind + ": " + message);
}

// ---- Parameters

DLDataType type_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F16:
      return {kDLFloat, 16, 1};
    case ffi::DataType::BF16:
      return {kDLBfloat, 16, 1};
    case ffi::DataType::F32:
      return {kDLFloat, 32, 1};
    case ffi::DataType::S32:
      return {kDLInt, 32, 1};
    case ffi::DataType::PRED:
      return {kDLBool, 8, 1};
    default:
      refuse("no operation has buffers of XLA's type " +
             std::to_string(static_cast<int>(type)));
  }
}

template <typename Number>
Number number_of(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end)
    refuse("a custom call has the number '" + std::string(text) + "'");
  return number;
}

/// Bytes of scratch memory, or nullptr.
using Allocate = std::function<void*(std::size_t)>;

/// A call of one function on one device, which is XLA's: a call cannot name another.
class Call {
 public:
  Call(DLDevice device, std::string_view words, ffi::RemainingArgs args,
       ffi::RemainingRets rets)
      : device_(device), args_(args), rets_(rets) {
    function_ = function_of(next(words));
    parameters_.emplace_back(std::int64_t{0});   // the action
    parameters_.emplace_back(std::int64_t{-1});  // the device of the tensors
    while (!words.empty()) add(next(words));
  }

  void prepare() { run(Action::kPrepare); }

  void launch(const Allocate& allocate) {
    const std::int64_t bytes = run(Action::kLaunch);
    if (workspace_at_ == 0 || bytes == 0)
      return;
    parameters_[workspace_at_] = workspace(bytes, allocate);
    run(Action::kLaunch);
  }

 private:
  struct Tensor {
    std::int64_t bytes;  // the shape of a workspace
    std::array<std::int64_t, kMostDimensions> strides;
    DLTensor view;
  };

  // Takes the first word off.
  static std::string_view next(std::string_view& words) {
    const std::size_t end = words.find(' ');
    const std::string_view word = words.substr(0, end);
    words.remove_prefix(end == std::string_view::npos ? words.size() : end + 1);
    if (word.empty())
      refuse("a custom call has an empty word");
    return word;
  }

  void add(std::string_view word) {
    const std::string_view rest = word.substr(1);
    switch (word.front()) {
      case 'r':
        add(rets_.get<ffi::AnyBuffer>(number_of<std::size_t>(rest)));
        break;
      case 'a':
        add(args_.get<ffi::AnyBuffer>(number_of<std::size_t>(rest)));
        break;
      case 'w':
        workspace_at_ = parameters_.size();
        [[fallthrough]];
      case 'n':
        parameters_.emplace_back(nullptr);
        break;
      case 't':
      case 'f':
        parameters_.emplace_back(word.front() == 't');
        break;
      case 'i':
        parameters_.emplace_back(number_of<std::int64_t>(rest));
        break;
      case 'd':
        parameters_.emplace_back(number_of<double>(rest));
        break;
      case 's':
        parameters_.emplace_back(texts_.emplace_back(rest).c_str());
        break;
      default:
        refuse("a custom call has the word '" + std::string(word) + "'");
    }
  }
  void add(ffi::ErrorOr<ffi::Result<ffi::AnyBuffer>> result) {
    if (result.has_error())
      refuse(result.error().message());
    add(*result.value());
  }
  void add(ffi::ErrorOr<ffi::AnyBuffer> argument) {
    if (argument.has_error())
      refuse(argument.error().message());
    add(argument.value());
  }
  // Contiguous, since ffi_call() asks for that.
  void add(const ffi::AnyBuffer& buffer) {
    const auto dims = buffer.dimensions();
    if (dims.size() > kMostDimensions)
      refuse("an array has " + std::to_string(dims.size()) + " dimensions");
    Tensor& tensor = tensors_.emplace_back();
    std::int64_t stride = 1;
    for (std::size_t i = dims.size(); i-- > 0; stride *= dims.begin()[i])
      tensor.strides[i] = stride;
    tensor.view = {buffer.untyped_data(),
                   device_,
                   static_cast<std::int32_t>(dims.size()),
                   type_of(buffer.element_type()),
                   const_cast<std::int64_t*>(dims.begin()),
                   tensor.strides.data(),
                   0};
    parameters_.emplace_back(&tensor.view);
  }
  DLTensor* workspace(std::int64_t bytes, const Allocate& allocate) {
    void* const memory = allocate(static_cast<std::size_t>(bytes));
    if (memory == nullptr)
      throw tvm::ffi::Error("kiln.ResourceLimit",
                            "XLA has no " + std::to_string(bytes) +
                                " bytes of scratch memory on the device",
                            "");
    Tensor& tensor = tensors_.emplace_back();
    tensor.bytes = bytes;
    tensor.strides[0] = 1;
    tensor.view = {
        memory, device_, 1, {kDLUInt, 8, 1}, &tensor.bytes, tensor.strides.data(), 0};
    return &tensor.view;
  }
  std::int64_t run(Action action) {
    parameters_[0] = static_cast<std::int64_t>(action) + kFromXla;
    tvm::ffi::Any result;
    TVM_FFI_CHECK_SAFE_CALL(
        function_(nullptr, reinterpret_cast<const TVMFFIAny*>(parameters_.data()),
                  static_cast<std::int32_t>(parameters_.size()),
                  reinterpret_cast<TVMFFIAny*>(&result)));
    return result.cast<std::int64_t>();
  }

  DLDevice device_;
  ffi::RemainingArgs args_;
  ffi::RemainingRets rets_;
  Function function_;
  std::vector<AnyView> parameters_;
  std::deque<Tensor> tensors_;     // parameters_ point to them
  std::deque<std::string> texts_;  // likewise
  std::size_t workspace_at_ = 0;
};

/// While it lives, the stream is this thread's current one of the device.
class CurrentStream {
 public:
  CurrentStream(DLDevice device, void* stream) : device_(device) {
    TVM_FFI_CHECK_SAFE_CALL(
        TVMFFIEnvSetStream(device_.device_type, device_.device_id, stream, &before_));
  }
  ~CurrentStream() {
    std::ignore = TVMFFIEnvSetStream(device_.device_type, device_.device_id, before_,
                                     nullptr);  // it was set above, so it can be
  }
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;

 private:
  DLDevice device_;
  TVMFFIStreamHandle before_ = nullptr;
};

// No exception reaches XLA.
template <typename Body>
ffi::Error without_exceptions(const Body& body) {
  try {
    body();
    return ffi::Error::Success();
  } catch (const tvm::ffi::Error& error) {
    return error_of(error);
  } catch (const std::exception& error) {
    return ffi::Error::Internal(std::string("kiln.Error: ") + error.what());
  }
}

// ---- Handlers

ffi::Error prepare_on_cuda(std::int32_t ordinal, std::string_view call,
                           ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return without_exceptions([&] {
    Call({kDLCUDA, ordinal}, call, args, rets).prepare();
  });
}

ffi::Error launch_on_cuda(void* stream, std::int32_t ordinal,
                          ffi::ScratchAllocator scratch, std::string_view call,
                          ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return without_exceptions([&] {
    const DLDevice device{kDLCUDA, ordinal};
    const CurrentStream current(device, stream);
    Call(device, call, args, rets).launch([&](std::size_t bytes) {
      std::size_t room = bytes + (kWorkspaceAlignment - kXlaAlignment);
      void* memory = scratch.Allocate(room, kXlaAlignment).value_or(nullptr);
      return std::align(kWorkspaceAlignment, bytes, memory, room);
    });
  });
}

// Refused by the function, unless kiln.testing gives the CPU's memory to a device.
ffi::Error launch_on_host(std::int32_t ordinal, std::string_view call,
                          ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return without_exceptions([&] {
    std::unique_ptr<void, decltype(&std::free)> memory(nullptr, &std::free);
    Call({kDLCPU, ordinal}, call, args, rets).launch([&](std::size_t bytes) {
      const std::size_t whole = bytes + (kWorkspaceAlignment - 1);
      memory.reset(
          std::aligned_alloc(kWorkspaceAlignment, whole - whole % kWorkspaceAlignment));
      return memory.get();
    });
  });
}

template <typename Binding>
auto with_call(Binding&& binding) {
  return std::forward<Binding>(binding)
      .template Attr<std::string_view>("call")
      .RemainingArgs()
      .RemainingRets();
}

auto launch_on_cuda_binding() {
  return with_call(ffi::Ffi::Bind()
                       .Ctx<ffi::PlatformStream<void*>>()
                       .Ctx<ffi::DeviceOrdinal>()
                       .Ctx<ffi::ScratchAllocator>());
}

}  // namespace

// Before each run of a program, and before XLA captures any of its calls: what is
// captured has been prepared.
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    kiln_jax_prepare, prepare_on_cuda,
    with_call(ffi::Ffi::BindInitialize().Ctx<ffi::DeviceOrdinal>()));

// The same launches whenever the call, the shapes and the addresses are the same. Such
// a call has no workspace: XLA would free it when the handler returns, but a captured
// launch uses it again and again.
XLA_FFI_DEFINE_HANDLER_SYMBOL(kiln_jax_launch, launch_on_cuda, launch_on_cuda_binding(),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(kiln_jax_launch_with_workspace, launch_on_cuda,
                              launch_on_cuda_binding());

XLA_FFI_DEFINE_HANDLER_SYMBOL(kiln_jax_launch_on_host, launch_on_host,
                              with_call(ffi::Ffi::Bind().Ctx<ffi::DeviceOrdinal>()));

}  // namespace kiln::python
