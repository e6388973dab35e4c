#include "call.h"

#include <tvm/ffi/extra/c_env_api.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>

#include "python/operation_parameters.h"

namespace kiln::python {
namespace {

constexpr std::chrono::milliseconds kBetweenSignalChecks{50};

// By the codes of kiln/c.h, as CLASSES in kiln/errors.py.
constexpr std::array kClasses{
    "Error",   "InvalidArgument", "NotFound",    "CompileFailed", "WorkerCrashed",
    "Timeout", "ResourceLimit",   "Cancelled",   "Corrupt",       "Untrusted",
    "IoError", "Unavailable",     "DeviceError", "ForkError"};
static_assert(kClasses[KILN_NOT_FOUND] == std::string_view("NotFound") &&
              kClasses[KILN_COMPILE_FAILED] == std::string_view("CompileFailed") &&
              kClasses.size() == KILN_FORKED + 1);

std::string class_of(int code) {
  const auto index = static_cast<std::size_t>(code);
  return std::string("kiln.") + kClasses[index < kClasses.size() ? index : 0];
}

// Shared by the thread that waits and the one that runs the body, which may outlive it.
struct Outcome {
  std::mutex mutex;
  std::condition_variable done;
  bool is_done = false;
  // Freed here if the caller was interrupted.
  std::unique_ptr<kiln_error, void (*)(kiln_error*)> failed{nullptr, kiln_error_free};
};

using Names = std::vector<const char*>;

/// Of the values of each function.
std::map<std::string, Names>& functions() {
  static auto* const all = new std::map<std::string, Names>;  // never destroyed
  return *all;
}

std::string text_of(const DLDevice& device) {
  switch (device.device_type) {
    case kDLCPU:
      return "the CPU";
    case kDLCUDA:
      return "cuda:" + std::to_string(device.device_id);
    default:
      return "a device of DLPack's type " + std::to_string(device.device_type);
  }
}

std::string text_of(const TensorView& tensor) {
  std::string text = "[";
  for (int i = 0; i < tensor.ndim(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(tensor.size(i));
  return text + "]";
}

std::string text_of(DLDataType type) {
  if (type.code == kDLComplex)  // for which tvm-ffi has no name
    return "complex" + std::to_string(type.bits);
  return tvm::ffi::DLDataTypeToString(type);
}

bool equal(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

}  // namespace

void check(kiln_result failed) {
  if (failed == nullptr)
    return;
  std::string name = class_of(kiln_error_code(failed));
  std::string message = kiln_error_message(failed);
  if (kiln_error_code(failed) == KILN_COMPILE_FAILED) {
    const std::size_t before_log = message.size() - std::strlen(kiln_error_log(failed));
    name += "+log";
    message = std::to_string(before_log) + "\n" + message;
  }
  kiln_error_free(failed);
  throw tvm::ffi::Error(name, message, "");
}

void refuse(const std::string& message) {
  throw tvm::ffi::Error("kiln.InvalidArgument", message, "");
}

void run_interruptibly(std::function<kiln_result()> body, kiln_cancel* cancel) {
  if (::getpid() != ::gettid()) {  // Python handles signals in the main thread alone
    check(body());
    return;
  }
  const auto outcome = std::make_shared<Outcome>();
  try {
    std::thread([outcome, body = std::move(body)] {
      kiln_result failed = body();
      const std::lock_guard lock(outcome->mutex);
      outcome->failed.reset(failed);
      outcome->is_done = true;
      outcome->done.notify_one();
    }).detach();
  } catch (const std::system_error& error) {
    throw tvm::ffi::Error("kiln.Unavailable",
                          std::string("no thread can be started: ") + error.what(), "");
  }
  std::unique_lock lock(outcome->mutex);
  while (!outcome->done.wait_for(lock, kBetweenSignalChecks,
                                 [&] { return outcome->is_done; })) {
    lock.unlock();
    if (TVMFFIEnvCheckSignals() != 0) {
      kiln_cancel_request(cancel);
      throw tvm::ffi::EnvErrorAlreadySet();
    }
    lock.lock();
  }
  check(outcome->failed.release());
}

Tensors::Tensors(std::int64_t action, std::int64_t device)
    : action_(static_cast<Action>(action & ~(kFromXla | kTellNotContiguous))),
      is_from_xla_((action & kFromXla) != 0),
      tells_gaps_((action & kTellNotContiguous) != 0),
      has_stand_ins_(device >= 0),
      has_device_(has_stand_ins_),
      device_{kDLCUDA, static_cast<std::int32_t>(device)} {
  if (action_ < Action::kLaunch || action_ > Action::kPrepare)
    refuse("there is no action " + std::to_string(action));
}

void* Tensors::strided(const char* name, const TensorView& tensor) {
  void* const address = static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset();
  if (has_stand_ins_)
    return address != nullptr ? address : this;  // set: all that prepare() asks
  if (!has_device_) {
    device_ = device_of(name, tensor);
    has_device_ = true;
  } else if (const DLDevice its = device_of(name, tensor);
             its.device_id != device_.device_id) {
    refuse(std::string(name) + " is on " + text_of(tensor.device()) +
           ", and the other tensors are on " + text_of(device_));
  }
  return address;
}

void Tensors::tell_gap(const char* name) {
  if (has_stand_ins_)
    return;
  if (!tells_gaps_)
    refuse(std::string(name) + " is not contiguous");
  gaps_.emplace_back(name);
}

void* Tensors::data(const char* name, const TensorView& tensor) {
  if (!tensor.IsContiguous())
    tell_gap(name);
  return strided(name, tensor);
}

std::int64_t Tensors::row_stride(const char* name, const TensorView& tensor) {
  const std::int64_t columns = tensor.size(-1);
  std::int64_t stride = 0;  // 0: of no dimension yet
  std::int64_t next = 0;    // the stride of the next dimension outwards
  bool fits = columns <= 1 || tensor.stride(-1) == 1;
  for (int i = tensor.ndim() - 2; i >= 0; --i) {
    if (tensor.size(i) == 1)
      continue;
    if (stride == 0)
      stride = next = tensor.stride(i);
    fits = fits && tensor.stride(i) == next && stride >= columns;
    next *= tensor.size(i);
  }
  if (!fits)
    tell_gap(name);
  return fits && stride > 0 ? stride : columns;  // else that of its copy
}

kiln_dtype Tensors::dtype(const char* name, const TensorView& tensor) {
  const DLDataType type = tensor.dtype();
  if (equal(type, {kDLFloat, 16, 1}))
    return KILN_F16;
  if (equal(type, {kDLBfloat, 16, 1}))
    return KILN_BF16;
  if (equal(type, kFloat32))
    return KILN_F32;
  refuse(std::string(name) + " is " + text_of(type) +
         "; float16, bfloat16 and float32 are possible");
}

void Tensors::expect_dtype(const char* name, const TensorView& tensor,
                           DLDataType type) {
  if (!equal(tensor.dtype(), type))
    refuse(std::string(name) + " is " + text_of(tensor.dtype()) + ", not " +
           text_of(type));
}

DLDataType type_of(kiln_dtype dtype) {
  switch (dtype) {
    case KILN_F16:
      return {kDLFloat, 16, 1};
    case KILN_BF16:
      return {kDLBfloat, 16, 1};
    case KILN_F32:
      return kFloat32;
    default:
      return {};
  }
}

void Tensors::fit(const char* name, const Optional<TensorView>& tensor, DLDataType type,
                  std::initializer_list<std::int64_t> extents, KnownShape& shape) {
  if (!tensor)
    return;
  if (shape.tensor != nullptr)
    return expect_like(name, *tensor, shape.name, *shape.tensor);
  if (type.code == kByte.code && tensor.value().dtype().bits != kByte.bits)
    refuse(std::string(name) + " must have elements of one byte");
  if (type.code != kByte.code && type.bits != 0)
    expect_dtype(name, *tensor, type);
  if (extents.size() > 0)
    expect_elements(name, *tensor,
                    std::accumulate(extents.begin(), extents.end(), std::int64_t{1},
                                    std::multiplies<>()));
  shape = {name, &tensor.value()};
}

void Tensors::expect_rank(const char* name, const TensorView& tensor, int rank) {
  if (tensor.ndim() != rank)
    refuse(std::string(name) + " has the shape " + text_of(tensor) + ", and not " +
           std::to_string(rank) + " dimensions");
}

void Tensors::expect_elements(const char* name, const TensorView& tensor,
                              std::int64_t count) {
  if (tensor.numel() != count)
    refuse(std::string(name) + " has the shape " + text_of(tensor) + ", and not " +
           std::to_string(count) + " elements");
}

void Tensors::expect_like(const char* name, const TensorView& tensor,
                          const char* other_name, const TensorView& other, int free) {
  if (!equal(tensor.dtype(), other.dtype()))
    refuse(std::string(name) + " is " + text_of(tensor.dtype()) + ", and " +
           other_name + " is " + text_of(other.dtype()));
  bool are_equal = tensor.ndim() == other.ndim();
  for (int i = 0; are_equal && i < tensor.ndim(); ++i)
    are_equal = i == free || tensor.size(i) == other.size(i);
  if (are_equal)
    return;
  std::string message = std::string(name) + " has the shape " + text_of(tensor) +
                        ", and " + other_name + " has " + text_of(other);
  if (free >= 0)
    message += ": only dimension " + std::to_string(free) + " may differ";
  refuse(message);
}

const TensorView& needed(const char* name, const Optional<TensorView>& tensor) {
  if (!tensor)
    refuse(std::string(name) + " is missing");
  return tensor.value();
}

kiln_stream Tensors::stream() const {
  return static_cast<kiln_stream>(TVMFFIEnvGetStream(kDLCUDA, device_.device_id));
}

void add_function(const char* function, std::vector<const char*> names) {
  functions()[function] = std::move(names);
}

namespace {

Array<String> parameters(const String& function) {
  const auto found = functions().find(function);
  if (found == functions().end())
    refuse("no operation is called " + std::string(function));
  Array<String> names;
  for (const char* const name : found->second) names.push_back(name);
  return names;
}

/// The words of an enumeration by their values, with blanks between them.
String enumerators(const String& enumeration) {
  for (const auto& [name, words] : kEnumerations)
    if (enumeration == name)
      return words;
  refuse("no enumeration is called " + std::string(enumeration));
}

}  // namespace

void expect_preparable(kiln_result missing, const char* operation, int device,
                       kiln_stream stream) {
  if (kiln_error_code(missing) != KILN_NOT_FOUND)
    check(missing);
  const std::string what = kiln_error_message(missing);
  kiln_error_free(missing);
  bool is_capturing = false;
  check(kiln_stream_is_capturing(service(), device, stream, &is_capturing));
  if (is_capturing)
    refuse(std::string(operation) +
           ": the stream is being captured, and no call with these types, sizes, "
           "strides and options was prepared: call kiln.prepare(), or run it once, "
           "before the capture begins (" +
           what + ")");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(parameters, parameters)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(enumerators, enumerators)

}  // namespace kiln::python
