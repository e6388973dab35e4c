// XLA's side of its FFI, as much as the handlers of python/jax ask for: a call on a
// CUDA device, with its ordinal, a stream and scratch memory, in any stage. Memory is
// the host's. Plain C functions, for ctypes.

#include <xla/ffi/api/c_api.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

// Types that XLA's interface leaves to XLA.
// NOLINTBEGIN(readability-identifier-naming)
struct XLA_FFI_Error {
  std::string message;
};
struct XLA_FFI_ExecutionContext {
  std::int32_t ordinal;
  void* stream;
  std::int64_t allocated;
  std::int64_t freed;
};
// NOLINTEND(readability-identifier-naming)

extern "C" {

struct HostBuffer {
  std::int32_t type;  // XLA_FFI_DataType
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};

struct HostCall {
  const char* call;  // the attribute
  std::int32_t stage;
  std::int32_t ordinal;
  void* stream;
  const HostBuffer* args;
  std::int64_t arg_count;
  const HostBuffer* results;
  std::int64_t result_count;
  std::int64_t allocated;  // out: blocks of scratch memory
  std::int64_t freed;      // out
  char said[1024];         // out, zeros before: the handler's error, or ""
};

/// Calls the handler.
void kiln_xla_run(void* handler, HostCall* call);

/// XLA_FFI_HANDLER_TRAITS_... of the handler.
std::uint32_t kiln_xla_traits(void* handler);
}

namespace {

XLA_FFI_Error* create_error(XLA_FFI_Error_Create_Args* args) {
  return new XLA_FFI_Error{std::to_string(args->errc) + ": " + args->message};
}
void get_message(XLA_FFI_Error_GetMessage_Args* args) {
  args->message = args->error->message.c_str();
}
void destroy_error(XLA_FFI_Error_Destroy_Args* args) {
  delete args->error;
}
XLA_FFI_Error* get_stream(XLA_FFI_Stream_Get_Args* args) {
  args->stream = args->ctx->stream;
  return nullptr;
}
XLA_FFI_Error* get_ordinal(XLA_FFI_DeviceOrdinal_Get_Args* args) {
  args->device_ordinal = args->ctx->ordinal;
  return nullptr;
}
constexpr std::uintptr_t kPage = 4096;

// As XLA: for an alignment of at most 16, and never better than it was asked for.
XLA_FFI_Error* allocate(XLA_FFI_DeviceMemory_Allocate_Args* args) {
  constexpr std::size_t kMost = 16;
  if (!std::has_single_bit(args->alignment) || args->alignment > kMost)
    return new XLA_FFI_Error{"no alignment of " + std::to_string(args->alignment)};
  const std::size_t whole = (args->size / kPage + 2) * kPage;
  auto* const begin = static_cast<std::byte*>(std::aligned_alloc(kPage, whole));
  args->data = begin + args->alignment;
  ++args->ctx->allocated;
  return nullptr;
}
XLA_FFI_Error* free_memory(XLA_FFI_DeviceMemory_Free_Args* args) {
  const auto address = reinterpret_cast<std::uintptr_t>(args->data);
  std::free(static_cast<std::byte*>(args->data) - address % kPage);
  ++args->ctx->freed;
  return nullptr;
}

const XLA_FFI_Api& api() {
  static const XLA_FFI_Api the_api = [] {
    XLA_FFI_Api made{};
    made.struct_size = XLA_FFI_Api_STRUCT_SIZE;
    made.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
    made.api_version.major_version = XLA_FFI_API_MAJOR;
    made.api_version.minor_version = XLA_FFI_API_MINOR;
    made.XLA_FFI_Error_Create = create_error;
    made.XLA_FFI_Error_GetMessage = get_message;
    made.XLA_FFI_Error_Destroy = destroy_error;
    made.XLA_FFI_Stream_Get = get_stream;
    made.XLA_FFI_DeviceOrdinal_Get = get_ordinal;
    made.XLA_FFI_DeviceMemory_Allocate = allocate;
    made.XLA_FFI_DeviceMemory_Free = free_memory;
    return made;
  }();
  return the_api;
}

// The buffers of one direction, as a call frame has them.
template <typename Type>
struct Buffers {
  Buffers(const HostBuffer* given, std::int64_t count, Type type)
      : buffers(static_cast<std::size_t>(count)), types(buffers.size(), type) {
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      XLA_FFI_Buffer& buffer = buffers[i];
      buffer.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
      buffer.dtype = static_cast<XLA_FFI_DataType>(given[i].type);
      buffer.data = given[i].data;
      buffer.rank = given[i].rank;
      buffer.dims = given[i].dims;
      pointers.push_back(&buffer);
    }
  }
  std::vector<XLA_FFI_Buffer> buffers;
  std::vector<Type> types;
  std::vector<void*> pointers;
};

XLA_FFI_CallFrame frame_of(XLA_FFI_ExecutionContext* context) {
  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &api();
  frame.ctx = context;
  frame.args.struct_size = XLA_FFI_Args_STRUCT_SIZE;
  frame.rets.struct_size = XLA_FFI_Rets_STRUCT_SIZE;
  frame.attrs.struct_size = XLA_FFI_Attrs_STRUCT_SIZE;
  return frame;
}

XLA_FFI_Handler* handler_of(void* address) {
  return reinterpret_cast<XLA_FFI_Handler*>(address);
}

}  // namespace

void kiln_xla_run(void* handler, HostCall* call) {
  XLA_FFI_ExecutionContext context{call->ordinal, call->stream, 0, 0};
  XLA_FFI_CallFrame frame = frame_of(&context);
  frame.stage = static_cast<XLA_FFI_ExecutionStage>(call->stage);
  Buffers args(call->args, call->arg_count, XLA_FFI_ArgType_BUFFER);
  frame.args.size = call->arg_count;
  frame.args.types = args.types.data();
  frame.args.args = args.pointers.data();
  Buffers results(call->results, call->result_count, XLA_FFI_RetType_BUFFER);
  frame.rets.size = call->result_count;
  frame.rets.types = results.types.data();
  frame.rets.rets = results.pointers.data();
  std::string text = call->call;
  XLA_FFI_ByteSpan value{text.data(), text.size()};
  XLA_FFI_ByteSpan name{"call", 4};
  XLA_FFI_ByteSpan* names[] = {&name};
  void* values[] = {&value};
  XLA_FFI_AttrType types[] = {XLA_FFI_AttrType_STRING};
  frame.attrs.size = 1;
  frame.attrs.types = types;
  frame.attrs.names = names;
  frame.attrs.attrs = values;
  const std::unique_ptr<XLA_FFI_Error> failed(handler_of(handler)(&frame));
  call->allocated = context.allocated;
  call->freed = context.freed;
  if (failed != nullptr)
    failed->message.copy(call->said, sizeof call->said - 1);
}

std::uint32_t kiln_xla_traits(void* handler) {
  XLA_FFI_Metadata metadata{};
  metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  metadata.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
  XLA_FFI_Metadata_Extension extension{};
  extension.extension_base.struct_size = XLA_FFI_Metadata_Extension_STRUCT_SIZE;
  extension.extension_base.type = XLA_FFI_Extension_Metadata;
  extension.metadata = &metadata;
  XLA_FFI_CallFrame frame = frame_of(nullptr);
  frame.extension_start = &extension.extension_base;
  const std::unique_ptr<XLA_FFI_Error> failed(handler_of(handler)(&frame));
  return failed == nullptr ? metadata.traits : ~std::uint32_t{0};
}
