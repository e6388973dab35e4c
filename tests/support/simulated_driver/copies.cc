// Copies and fills. They are done before they return, on a stream or not, unless they
// are captured.

#include <algorithm>
#include <cstring>
#include <optional>

#include "tests/support/simulated_driver/abi_functions.h"
#include "tests/support/simulated_driver/capture.h"
#include "tests/support/simulated_driver/written.h"

using kiln::simulated::Order;
using kiln::simulated::Pitch;

namespace {

enum class Side { kDevice, kHost, kEither };

struct Place {
  CUdeviceptr at = 0;
  Side side = Side::kDevice;
  Pitch pitch{};
};

struct Copy {
  Place to;
  Place from;
  std::size_t width = 0;
  std::size_t height = 1;
  std::size_t depth = 1;
};

/// From the first byte to the last one; nullopt where rows or slices overlap, or there
/// are no so many bytes.
std::optional<std::size_t> extent(const Pitch& pitch, std::size_t width,
                                  std::size_t height, std::size_t depth) {
  std::size_t rows = 0;
  std::size_t slices = 0;
  std::size_t all = 0;
  if ((height > 1 && pitch.row < width) ||
      (depth > 1 && pitch.slice / height < pitch.row) ||
      __builtin_mul_overflow(height - 1, pitch.row, &rows) ||
      __builtin_mul_overflow(depth - 1, pitch.slice, &slices) ||
      __builtin_add_overflow(rows, slices, &all) ||
      __builtin_add_overflow(all, width, &all))
    return std::nullopt;
  return all;
}

// Of the host's memory only the allocations made here are known.
bool is_good(const Simulator& simulator, const Place& place, const Copy& copy) {
  const auto bytes = extent(place.pitch, copy.width, copy.height, copy.depth);
  return place.at != 0 && bytes &&
         (place.side != Side::kDevice || simulator.is_allocated(place.at, *bytes));
}

tl::expected<MemoryWork, CUresult> check(const Simulator& simulator, const Copy& copy) {
  if (copy.width == 0 || copy.height == 0 || copy.depth == 0)
    return MemoryWork{.to = copy.to.at, .from = copy.from.at, .width = 0};
  if (!is_good(simulator, copy.to, copy) || !is_good(simulator, copy.from, copy))
    return tl::unexpected(CUDA_ERROR_INVALID_VALUE);
  return MemoryWork{.to = copy.to.at,
                    .to_pitch = copy.to.pitch,
                    .from = copy.from.at,
                    .from_pitch = copy.from.pitch,
                    .width = copy.width,
                    .height = copy.height,
                    .depth = copy.depth};
}

// Now, or whenever the graph is launched.
template <typename Check>
CUresult work(const char* symbol, const Order& order, const Check& make) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    if (const CUresult refused = admit(simulator, order); refused != CUDA_SUCCESS)
      return refused;
    const tl::expected<MemoryWork, CUresult> made = make(simulator);
    if (!made)
      return made.error();
    Stream* const stream =
        order.is_on_stream ? simulator.stream(order.stream) : nullptr;
    if (stream != nullptr && stream->capture)
      kiln::simulated::add_captured(simulator, *stream, *made);
    else
      kiln::simulated::perform(*made);
    return CUDA_SUCCESS;
  });
}

CUresult copy(const char* symbol, const Copy& what, const Order& order) {
  return work(symbol, order,
              [&](const Simulator& simulator) { return check(simulator, what); });
}

/// A place as the structures of copies tell it. nullopt for an array.
struct Told {
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  const void* host = nullptr;
  CUdeviceptr device = 0;
  std::size_t x = 0;
  std::size_t y = 0;
  std::size_t z = 0;
  std::size_t pitch = 0;
  std::size_t height = 0;
};

std::optional<Place> place_of(const Told& told) {
  const bool is_host = told.type == CU_MEMORYTYPE_HOST;
  if (!is_host && told.type != CU_MEMORYTYPE_DEVICE &&
      told.type != CU_MEMORYTYPE_UNIFIED)
    return std::nullopt;
  const CUdeviceptr base = is_host ? pointer_to(told.host) : told.device;
  const std::size_t offset = (told.z * told.height + told.y) * told.pitch + told.x;
  const Side side = is_host                              ? Side::kHost
                    : told.type == CU_MEMORYTYPE_UNIFIED ? Side::kEither
                                                         : Side::kDevice;
  return Place{base == 0 ? 0 : base + offset,
               side,
               {.row = told.pitch, .slice = told.pitch * told.height}};
}

/// The same in three dimensions.
CUDA_MEMCPY3D in_slices(const CUDA_MEMCPY2D& flat) {
  CUDA_MEMCPY3D copy{};
  copy.srcXInBytes = flat.srcXInBytes;
  copy.srcY = flat.srcY;
  copy.srcMemoryType = flat.srcMemoryType;
  copy.srcHost = flat.srcHost;
  copy.srcDevice = flat.srcDevice;
  copy.srcPitch = flat.srcPitch;
  copy.dstXInBytes = flat.dstXInBytes;
  copy.dstY = flat.dstY;
  copy.dstMemoryType = flat.dstMemoryType;
  copy.dstHost = flat.dstHost;
  copy.dstDevice = flat.dstDevice;
  copy.dstPitch = flat.dstPitch;
  copy.WidthInBytes = flat.WidthInBytes;
  copy.Height = flat.Height;
  copy.Depth = 1;
  return copy;
}

CUresult copy(const char* symbol, const CUDA_MEMCPY3D* what, const Order& order) {
  return work(symbol, order,
              [&](const Simulator& simulator) -> tl::expected<MemoryWork, CUresult> {
                if (what == nullptr)
                  return tl::unexpected(CUDA_ERROR_INVALID_VALUE);
                return kiln::simulated::work_of(simulator, *what);
              });
}

CUresult copy(const char* symbol, const CUDA_MEMCPY2D* what, const Order& order) {
  const CUDA_MEMCPY3D copied = what == nullptr ? CUDA_MEMCPY3D{} : in_slices(*what);
  return copy(symbol, what == nullptr ? nullptr : &copied, order);
}

CUresult set(const char* symbol, const CUDA_MEMSET_NODE_PARAMS& fill,
             const Order& order) {
  return work(symbol, order, [&](const Simulator& simulator) {
    return kiln::simulated::work_of(simulator, fill);
  });
}

}  // namespace

namespace kiln::simulated {

CUresult admit(Simulator& simulator, const Order& order) {
  if (!order.is_on_stream)
    return simulator.check_not_capturing();
  const Stream* const stream = simulator.stream(order.stream);
  if (stream == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  return admit_work(simulator, *stream);
}

void perform(const MemoryWork& work) {
  for (std::size_t row = 0; row < work.height * work.depth; ++row) {
    const auto offset = [&](const Pitch& pitch) {
      return row / work.height * pitch.slice + row % work.height * pitch.row;
    };
    auto* const to =
        static_cast<unsigned char*>(address_of(work.to)) + offset(work.to_pitch);
    written().note(pointer_to(to), work.width);
    if (work.from != 0) {
      std::memmove(to, address_of(work.from + offset(work.from_pitch)), work.width);
      continue;
    }
    for (std::size_t at = 0; at < work.width; at += work.value_bytes)
      std::memcpy(to + at, &work.value, work.value_bytes);  // little-endian
  }
}

tl::expected<MemoryWork, CUresult> work_of(const Simulator& simulator,
                                           const CUDA_MEMCPY3D& copy) {
  const auto to =
      place_of({copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstXInBytes,
                copy.dstY, copy.dstZ, copy.dstPitch, copy.dstHeight});
  const auto from =
      place_of({copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcXInBytes,
                copy.srcY, copy.srcZ, copy.srcPitch, copy.srcHeight});
  if (!to || !from)
    return tl::unexpected(CUDA_ERROR_NOT_SUPPORTED);
  return check(simulator, {*to, *from, copy.WidthInBytes, copy.Height, copy.Depth});
}

tl::expected<MemoryWork, CUresult> work_of(const Simulator& simulator,
                                           const CUDA_MEMSET_NODE_PARAMS& fill) {
  const std::size_t unit = fill.elementSize;
  MemoryWork made{.to = fill.dst,
                  .to_pitch = {.row = fill.pitch, .slice = 0},
                  .width = 0,
                  .height = fill.height,
                  .value = fill.value,
                  .value_bytes = fill.elementSize};
  if ((unit != 1 && unit != 2 && unit != 4) || fill.dst % unit != 0 ||
      (fill.height > 1 && fill.pitch % unit != 0) ||
      __builtin_mul_overflow(fill.width, unit, &made.width))
    return tl::unexpected(CUDA_ERROR_INVALID_VALUE);
  if (made.width == 0 || made.height == 0)
    return made;
  const auto bytes = extent(made.to_pitch, made.width, made.height, 1);
  if (!bytes || !simulator.is_allocated(fill.dst, *bytes))
    return tl::unexpected(CUDA_ERROR_INVALID_VALUE);
  return made;
}

}  // namespace kiln::simulated

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t size) {
  return copy(__func__, {{to, Side::kEither}, {from, Side::kEither}, size}, {});
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t size,
                       CUstream stream) {
  return copy(__func__, {{to, Side::kEither}, {from, Side::kEither}, size},
              {true, stream});
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t size) {
  return copy(__func__, {{to}, {pointer_to(from), Side::kHost}, size}, {});
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t size,
                              CUstream stream) {
  return copy(__func__, {{to}, {pointer_to(from), Side::kHost}, size}, {true, stream});
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t size) {
  return copy(__func__, {{pointer_to(to), Side::kHost}, {from}, size}, {});
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t size,
                              CUstream stream) {
  return copy(__func__, {{pointer_to(to), Side::kHost}, {from}, size}, {true, stream});
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t size) {
  return copy(__func__, Copy{{to}, {from}, size}, {});
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t size,
                              CUstream stream) {
  return copy(__func__, Copy{{to}, {from}, size}, {true, stream});
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* what) {
  return copy(__func__, what, {});
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* what) {
  return copy(__func__, what, {});
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* what, CUstream stream) {
  return copy(__func__, what, {true, stream});
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* what) {
  return copy(__func__, what, {});
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* what, CUstream stream) {
  return copy(__func__, what, {true, stream});
}

// Four fills of one shape, for each width of a value. The driver has their parameters.
// NOLINTBEGIN(readability-function-size)
#define KILN_FILLS(bits, Value)                                                     \
  CUresult cuMemsetD##bits##_v2(CUdeviceptr to, Value value, std::size_t count) {   \
    return set(__func__, {to, 0, value, sizeof(Value), count, 1}, {});              \
  }                                                                                 \
  CUresult cuMemsetD##bits##Async(CUdeviceptr to, Value value, std::size_t count,   \
                                  CUstream stream) {                                \
    return set(__func__, {to, 0, value, sizeof(Value), count, 1}, {true, stream});  \
  }                                                                                 \
  CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, std::size_t pitch, Value value,   \
                                  std::size_t width, std::size_t height) {          \
    return set(__func__, {to, pitch, value, sizeof(Value), width, height}, {});     \
  }                                                                                 \
  CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, std::size_t pitch, Value value, \
                                    std::size_t width, std::size_t height,          \
                                    CUstream stream) {                              \
    return set(__func__, {to, pitch, value, sizeof(Value), width, height},          \
               {true, stream});                                                     \
  }
KILN_FILLS(8, unsigned char)
KILN_FILLS(16, unsigned short)
KILN_FILLS(32, unsigned)
#undef KILN_FILLS
// NOLINTEND(readability-function-size)
