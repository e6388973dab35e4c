// Kernels from CUDA sources, as objects of Python.

#include <tvm/ffi/extra/c_env_api.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "call.h"

namespace kiln::python {
namespace {

using tvm::ffi::Bytes;
using tvm::ffi::Map;
using tvm::ffi::Object;
using tvm::ffi::ObjectRef;

class KernelObject : public Object {
 public:
  KernelObject(kiln_kernel* owned, int on_device) : kernel(owned), device(on_device) {
    // It has none yet where an entry point is still to be chosen.
    std::size_t count = 0;
    if (is_failure(kiln_kernel_parameters(kernel, nullptr, &count)))
      return;
    sizes.emplace(count);
    if (is_failure(kiln_kernel_parameters(kernel, sizes->data(), &count)))
      sizes.reset();
    kinds.resize(count);
    if (is_failure(kiln_kernel_parameter_kinds(kernel, kinds.data(), &count)))
      kinds.clear();
  }
  ~KernelObject() { kiln_kernel_free(kernel); }
  KernelObject(const KernelObject&) = delete;
  KernelObject& operator=(const KernelObject&) = delete;

  kiln_kernel* const kernel;
  const int device;                               // its CUDA ordinal
  std::optional<std::vector<std::size_t>> sizes;  // of the parameters, if known
  std::vector<std::uint8_t> kinds;                // of those that are known
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("kiln.Kernel", KernelObject, Object);

 private:
  static bool is_failure(kiln_result failed) {
    const bool is_one = failed != nullptr;
    kiln_error_free(failed);
    return is_one;
  }
};

// NOLINTNEXTLINE(cppcoreguidelines-special-member-functions): the macro's
class Kernel : public ObjectRef {
 public:
  Kernel(kiln_kernel* owned, int device)
      : ObjectRef(tvm::ffi::make_object<KernelObject>(owned, device)) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Kernel, ObjectRef, KernelObject);
};

// A kiln_get_source() call, which runs on after its caller was interrupted; then
// `kernel` is freed here.
struct Fetch {
  Fetch() = default;
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;
  ~Fetch() {
    kiln_kernel_free(kernel.load());
    kiln_cancel_free(cancel);
  }

  /// A copy, which lives as long as this.
  const char* keep(const String& text) { return texts_.emplace_back(text).c_str(); }
  /// Sets a list of `source`, or of its other sources.
  void keep(const char* const*& list, std::size_t& count, const Array<String>& texts) {
    std::vector<const char*>& kept = lists_.emplace_back();
    for (const String& text : texts) kept.push_back(keep(text));
    list = kept.data();
    count = kept.size();
  }
  /// The sources that are linked with `source`: they have in common with it what is set
  /// by now, but the names.
  void link(const Array<String>& texts) {
    for (const String& text : texts) {
      kiln_source& other = others_.emplace_back(source);
      other.source = keep(text);
      other.name_expression_count = 0;
      linked_.push_back(&other);
    }
    source.linked_sources = linked_.data();
    source.linked_source_count = linked_.size();
  }

  kiln_source source = KILN_SOURCE_INIT;
  kiln_cancel* const cancel = kiln_cancel_new();
  std::atomic<kiln_kernel*> kernel = nullptr;

 private:
  std::deque<std::string> texts_;  // a deque, as its elements stay where they are
  std::deque<std::vector<const char*>> lists_;
  std::deque<kiln_source> others_;
  std::vector<const kiln_source*> linked_;
};

// Blocks while it is built; Ctrl-C ends the wait and the build.
Kernel kernel_from_source(std::int64_t device, String source, String file_name,
                          Map<String, String> headers, Array<String> include_dirs,
                          Array<String> defines, Array<String> options,
                          Array<String> name_expressions, String target,
                          Array<String> linked_sources, Array<String> link_files,
                          Array<String> link_options) {
  const auto fetch = std::make_shared<Fetch>();
  kiln_source& from = fetch->source;
  from.source = fetch->keep(source);
  from.file_name = file_name.empty() ? nullptr : fetch->keep(file_name);
  from.target = target.empty() ? nullptr : fetch->keep(target);
  Array<String> names, texts;
  for (const auto& [name, text] : headers) {
    names.push_back(name);
    texts.push_back(text);
  }
  fetch->keep(from.header_names, from.header_count, names);
  fetch->keep(from.header_texts, from.header_count, texts);
  fetch->keep(from.include_dirs, from.include_dir_count, include_dirs);
  fetch->keep(from.defines, from.define_count, defines);
  fetch->keep(from.options, from.option_count, options);
  fetch->keep(from.name_expressions, from.name_expression_count, name_expressions);
  fetch->link(linked_sources);
  fetch->keep(from.link_files, from.link_file_count, link_files);
  fetch->keep(from.link_options, from.link_option_count, link_options);
  const auto get = [fetch, on = service(), where = static_cast<int>(device)] {
    kiln_kernel* kernel = nullptr;
    const kiln_result failed =
        kiln_get_source(on, where, &fetch->source, fetch->cancel, &kernel);
    fetch->kernel = kernel;
    return failed;
  };
  run_interruptibly(get, fetch->cancel);
  return {fetch->kernel.exchange(nullptr), static_cast<int>(device)};
}

Kernel kernel_entry(Kernel kernel, String name) {
  kiln_kernel* entry = nullptr;
  check(kiln_kernel_entry(kernel->kernel, name.c_str(), &entry));
  return {entry, kernel->device};
}

String kernel_key(Kernel kernel) {
  return kiln_kernel_key(kernel->kernel);
}

Bytes kernel_image(Kernel kernel) {
  const void* image = nullptr;
  std::size_t size = 0;
  check(kiln_kernel_image(kernel->kernel, &image, &size));
  return {static_cast<const char*>(image), size};
}

// Address and size of a variable of the module.
Array<std::int64_t> kernel_global(Kernel kernel, String name) {
  check_not_forked();
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  check(kiln_kernel_global(kernel->kernel, name.c_str(), &address, &bytes));
  return {static_cast<std::int64_t>(address), static_cast<std::int64_t>(bytes)};
}

Map<String, std::int64_t> kernel_attributes(Kernel kernel) {
  kiln_kernel_attributes info = KILN_KERNEL_ATTRIBUTES_INIT;
  check(kiln_kernel_info(kernel->kernel, &info));
  return {{"registers", info.registers},
          {"local_bytes", static_cast<std::int64_t>(info.local_bytes)},
          {"constant_bytes", static_cast<std::int64_t>(info.constant_bytes)},
          {"static_shared_bytes", info.static_shared_bytes},
          {"max_dynamic_shared_bytes", info.max_dynamic_shared_bytes},
          {"max_threads_per_block", info.max_threads_per_block}};
}

// The values of a launch: the address of a tensor, or of memory; a number, in the size
// of its parameter; bytes as they are.
class Values {
 public:
  explicit Values(const KernelObject& kernel) : kernel_(kernel) {}

  /// `kind`: of bytes that are a scalar of NumPy or ctypes, else KILN_ARGUMENT_ANY.
  void add(const AnyView& argument, int kind) {
    if (const auto tensor = argument.try_cast<TensorView>())
      return add_tensor(*tensor);
    if (const auto bytes = argument.try_cast<Bytes>())
      return add_bytes(*bytes, kind);
    if (const auto address = argument.try_cast<void*>())
      return add_address(*address);
    if (const auto number = argument.try_cast<std::int64_t>())
      return add_number(*number);
    if (const auto number = argument.try_cast<double>())
      return add_number(*number);
    refuse(name() + " is of no type that a kernel can take");
  }

  [[nodiscard]] void* const* addresses() const { return addresses_.data(); }
  [[nodiscard]] const std::size_t* sizes() const { return sizes_.data(); }
  [[nodiscard]] std::size_t count() const { return sizes_.size(); }

 private:
  [[nodiscard]] std::string name() const {
    return "argument " + std::to_string(count()) + " (counted from 0)";
  }

  void add_scalar(std::uint64_t bits, std::size_t size) {
    addresses_.push_back(
        &scalars_.emplace_back(bits));  // little-endian: from its start
    sizes_.push_back(size);
  }

  void add_tensor(const TensorView& tensor) {
    const DLDevice its = device_of(name().c_str(), tensor);
    if (its.device_id != kernel_.device)
      refuse(name() + " is on cuda:" + std::to_string(its.device_id) +
             ", and the kernel is loaded on cuda:" + std::to_string(kernel_.device));
    add_scalar(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) +
                   static_cast<std::uintptr_t>(tensor.byte_offset()),
               sizeof(void*));
  }

  void add_address(const void* address) {
    expect_memory_of(kernel_.device, name().c_str(), address);
    add_scalar(reinterpret_cast<std::uintptr_t>(address), sizeof address);
  }

  void add_bytes(const Bytes& bytes, int kind) {
    if (takes(KILN_ARGUMENT_INTEGER) && kind == KILN_ARGUMENT_FLOAT)
      refuse(name() +
             " is a floating-point scalar, and the parameter is a whole number");
    if (takes(KILN_ARGUMENT_FLOAT) && kind == KILN_ARGUMENT_INTEGER)
      refuse(
          name() +
          " is a scalar that is a whole number, and the parameter is floating-point");
    bytes_.push_back(bytes);
    addresses_.push_back(const_cast<char*>(bytes_.back().data()));
    sizes_.push_back(bytes.size());
  }

  // The launch itself refuses arguments beyond the last parameter.
  [[nodiscard]] std::size_t size_of_parameter() const {
    const bool is_known = kernel_.sizes && !takes(KILN_ARGUMENT_ANY);
    if (!is_known)
      refuse(name() +
             " is a number of Python, and nothing tells which type the parameter has: "
             "pass a scalar of NumPy or ctypes, or bytes");
    return count() < kernel_.sizes->size() ? (*kernel_.sizes)[count()] : 8;
  }

  [[nodiscard]] bool takes(std::uint8_t kind) const {
    return count() < kernel_.kinds.size() && kernel_.kinds[count()] == kind;
  }

  void add_number(std::int64_t number) {
    if (takes(KILN_ARGUMENT_FLOAT))
      return add_number(static_cast<double>(number));
    const std::size_t size = size_of_parameter();
    if (size != 1 && size != 2 && size != 4 && size != 8)
      refuse_size("an int", size);
    const auto bits = static_cast<int>(8 * size);
    if (bits < 64 && (number < -(std::int64_t{1} << (bits - 1)) ||
                      number >= std::int64_t{1} << bits))
      refuse(name() + " is " + std::to_string(number) + ", which does not fit into " +
             std::to_string(size) + " bytes");
    add_scalar(static_cast<std::uint64_t>(number), size);
  }

  void add_number(double number) {
    if (takes(KILN_ARGUMENT_INTEGER))
      refuse(name() +
             " is a float, and the parameter is a whole number or an address: pass an "
             "int");
    const std::size_t size = size_of_parameter();
    std::uint64_t bits = 0;
    if (size == sizeof(double)) {
      std::memcpy(&bits, &number, sizeof number);
    } else if (size == sizeof(float)) {
      const auto narrow = static_cast<float>(number);
      std::memcpy(&bits, &narrow, sizeof narrow);
    } else {
      refuse_size("a float", size);
    }
    add_scalar(bits, size);
  }

  [[noreturn]] void refuse_size(const char* what, std::size_t size) const {
    refuse(name() + " is " + what + " of Python, and the parameter has " +
           std::to_string(size) + " bytes: pass a scalar of NumPy or ctypes, or bytes");
  }

  const KernelObject& kernel_;
  std::deque<std::uint64_t> scalars_;  // a deque, as its elements stay where they are
  std::deque<Bytes> bytes_;
  std::vector<void*> addresses_;
  std::vector<std::size_t> sizes_;
};

std::uint32_t extent_of(std::int64_t value) {
  if (value < 0 || value > std::numeric_limits<std::uint32_t>::max())
    refuse(
        "grid, block, cluster and shared must be numbers from 0 to 4294967295, and " +
        std::to_string(value) + " is none");
  return static_cast<std::uint32_t>(value);
}

constexpr std::int64_t kCooperative = 1;
constexpr std::int64_t kProgrammatic = 2;
constexpr std::int64_t kHasPriority = 4;

void set_attributes(const Array<std::int64_t>& given, kiln_geometry& geometry) {
  if (given.empty())
    return;
  if (given.size() != 5)
    refuse("a launch has five attributes, or none");
  geometry.cooperative = (given[0] & kCooperative) != 0;
  geometry.programmatic = (given[0] & kProgrammatic) != 0;
  geometry.has_priority = (given[0] & kHasPriority) != 0;
  geometry.priority = static_cast<int>(given[1]);
  for (std::size_t i = 0; i < 3; ++i)
    geometry.preferred_cluster[i] = extent_of(given[static_cast<std::int64_t>(i) + 2]);
}

// Before the kernel's own arguments: the kernel, the stream, or None for the current
// stream of the framework that the tensors are of; then grid, block and cluster as nine
// numbers, the bytes of shared memory, the attributes of the launch (none, or flags,
// the priority and the three numbers of the preferred cluster), and a byte for the kind
// of each argument, or None.
void kernel_launch(const AnyView* arguments, std::int32_t count) {
  constexpr std::int32_t kOwn = 6;
  if (count < kOwn)
    refuse("a launch has at least six arguments");
  check_not_forked();
  const auto kernel = arguments[0].cast<Kernel>();
  const auto stream = arguments[1].cast<Optional<std::int64_t>>();
  const auto shape = arguments[2].cast<Array<std::int64_t>>();
  if (shape.size() != 9)
    refuse("grid, block and cluster have three numbers each");
  kiln_geometry geometry = KILN_GEOMETRY_INIT;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto at = static_cast<std::int64_t>(i);
    geometry.grid[i] = extent_of(shape[at]);
    geometry.block[i] = extent_of(shape[at + 3]);
    geometry.cluster[i] = extent_of(shape[at + 6]);
  }
  geometry.shared_bytes = extent_of(arguments[3].cast<std::int64_t>());
  set_attributes(arguments[4].cast<Array<std::int64_t>>(), geometry);
  Values values(*kernel.get());
  const auto its_count = static_cast<std::size_t>(count - kOwn);
  const auto given = arguments[5].cast<Optional<Bytes>>();
  const std::string kinds =
      given ? std::string(*given) : std::string(its_count, char{KILN_ARGUMENT_ANY});
  if (kinds.size() != its_count)
    refuse("each argument has one kind");
  for (std::size_t i = 0; i < its_count; ++i) values.add(arguments[kOwn + i], kinds[i]);
  // NOLINTBEGIN(performance-no-int-to-ptr): a CUstream
  const auto in =
      stream ? reinterpret_cast<kiln_stream>(*stream)
             : static_cast<kiln_stream>(TVMFFIEnvGetStream(kDLCUDA, kernel->device));
  // NOLINTEND(performance-no-int-to-ptr)
  check(kiln_kernel_launch(kernel->kernel, &geometry, in, values.addresses(),
                           values.sizes(), values.count()));
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(kernel_from_source, kernel_from_source)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kernel_entry, kernel_entry)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kernel_key, kernel_key)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kernel_image, kernel_image)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kernel_global, kernel_global)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kernel_attributes, kernel_attributes)

// As the macro above does, for a function with any number of arguments.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_kernel_launch(void* /*self*/,
                                                          const TVMFFIAny* arguments,
                                                          std::int32_t count,
                                                          TVMFFIAny* /*result: None*/) {
  TVM_FFI_SAFE_CALL_BEGIN();
  kernel_launch(reinterpret_cast<const AnyView*>(arguments), count);
  TVM_FFI_SAFE_CALL_END();
}

}  // namespace kiln::python
