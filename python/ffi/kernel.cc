// Kernels from CUDA sources, as objects of Python.

#include <tvm/ffi/extra/c_env_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "service.h"

namespace kiln::python {
namespace {

using tvm::ffi::AnyView;
using tvm::ffi::Array;
using tvm::ffi::Bytes;
using tvm::ffi::Map;
using tvm::ffi::Object;
using tvm::ffi::ObjectRef;
using tvm::ffi::String;

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

  int device = 0;
  std::string source, file_name, target;
  std::vector<std::string> header_names, header_texts, include_dirs, defines, options,
      name_expressions, linked_sources, link_files, link_options;
  kiln_cancel* cancel = kiln_cancel_new();
  std::atomic<kiln_kernel*> kernel = nullptr;
};

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> all;
  for (const std::string& text : texts) all.push_back(text.c_str());
  return all;
}

std::vector<std::string> texts_of(const Array<String>& list) {
  std::vector<std::string> all;
  for (const String& text : list) all.push_back(text);
  return all;
}

kiln_result get(kiln_service* from, Fetch& fetch) {
  const auto header_names = pointers(fetch.header_names);
  const auto header_texts = pointers(fetch.header_texts);
  const auto include_dirs = pointers(fetch.include_dirs);
  const auto defines = pointers(fetch.defines);
  const auto options = pointers(fetch.options);
  const auto name_expressions = pointers(fetch.name_expressions);
  kiln_source source = KILN_SOURCE_INIT;
  source.source = fetch.source.c_str();
  source.file_name = fetch.file_name.empty() ? nullptr : fetch.file_name.c_str();
  source.header_names = header_names.data();
  source.header_texts = header_texts.data();
  source.header_count = header_names.size();
  source.include_dirs = include_dirs.data();
  source.include_dir_count = include_dirs.size();
  source.defines = defines.data();
  source.define_count = defines.size();
  source.options = options.data();
  source.option_count = options.size();
  source.name_expressions = name_expressions.data();
  source.name_expression_count = name_expressions.size();
  source.target = fetch.target.empty() ? nullptr : fetch.target.c_str();
  // The first has the names; all have the rest in common.
  kiln_source other = source;
  other.name_expression_count = 0;
  std::vector<kiln_source> others(fetch.linked_sources.size(), other);
  std::vector<const kiln_source*> linked_sources;
  for (std::size_t i = 0; i < others.size(); ++i) {
    others[i].source = fetch.linked_sources[i].c_str();
    linked_sources.push_back(&others[i]);
  }
  const auto link_files = pointers(fetch.link_files);
  const auto link_options = pointers(fetch.link_options);
  source.linked_sources = linked_sources.data();
  source.linked_source_count = linked_sources.size();
  source.link_files = link_files.data();
  source.link_file_count = link_files.size();
  source.link_options = link_options.data();
  source.link_option_count = link_options.size();
  kiln_kernel* kernel = nullptr;
  const kiln_result failed =
      kiln_get_source(from, fetch.device, &source, fetch.cancel, &kernel);
  fetch.kernel = kernel;
  return failed;
}

// Blocks while it is built; Ctrl-C ends the wait and the build.
Kernel kernel_from_source(std::int64_t device, String source, String file_name,
                          Map<String, String> headers, Array<String> include_dirs,
                          Array<String> defines, Array<String> options,
                          Array<String> name_expressions, String target,
                          Array<String> linked_sources, Array<String> link_files,
                          Array<String> link_options) {
  const auto fetch = std::make_shared<Fetch>();
  fetch->device = static_cast<int>(device);
  fetch->source = source;
  fetch->file_name = file_name;
  for (const auto& [name, text] : headers) {
    fetch->header_names.push_back(name);
    fetch->header_texts.push_back(text);
  }
  fetch->include_dirs = texts_of(include_dirs);
  fetch->defines = texts_of(defines);
  fetch->options = texts_of(options);
  fetch->name_expressions = texts_of(name_expressions);
  fetch->target = target;
  fetch->linked_sources = texts_of(linked_sources);
  fetch->link_files = texts_of(link_files);
  fetch->link_options = texts_of(link_options);
  kiln_service* const from = service();
  run_interruptibly([fetch, from] { return get(from, *fetch); }, fetch->cancel);
  return {fetch->kernel.exchange(nullptr), fetch->device};
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
      refuse(name() +
             " is a scalar that is a whole number, and the parameter is "
             "floating-point");
    bytes_.push_back(bytes);
    addresses_.push_back(const_cast<char*>(bytes_.back().data()));
    sizes_.push_back(bytes.size());
  }

  // The launch itself refuses arguments beyond the last parameter.
  [[nodiscard]] std::size_t size_of_parameter() const {
    const bool is_known = kernel_.sizes && !takes(KILN_ARGUMENT_ANY);
    if (!is_known)
      refuse(name() +
             " is a number of Python, and nothing tells which type the "
             "parameter has: pass a scalar of NumPy or ctypes, or bytes");
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

// Before the kernel's own arguments: the kernel, the stream, or None for the current
// stream of the framework that the tensors are of; then grid, block and cluster as nine
// numbers, the bytes of shared memory, whether the launch is cooperative, and a byte
// for the kind of each argument, or None.
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
  geometry.cooperative = arguments[4].cast<bool>();
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
