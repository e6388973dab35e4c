// Memory pools: whose memory it is, and figures of how much. What is freed is free at
// once; a pool only reports that it kept it.

#include <algorithm>

#include "tests/support/simulated_driver/abi_functions.h"
#include "tests/support/simulated_driver/capture.h"

using kiln::simulated::Order;
using kiln::simulated::PoolPlace;

namespace {

/// What memory of that type at that place is; kUnknown where there is none.
MemoryKind kind_of(Simulator& simulator, const CUmemLocation& location,
                   CUmemAllocationType type) {
  // Not every cuda.h has CU_MEM_ALLOCATION_TYPE_MANAGED.
  constexpr int kManaged = 2;
  const bool is_managed = static_cast<int>(type) == kManaged;
  if (!is_managed && type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return MemoryKind::kUnknown;
  switch (static_cast<int>(location.type)) {
    case 0:  // no preference
      return is_managed ? MemoryKind::kManaged : MemoryKind::kUnknown;
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (simulator.device(location.id) == nullptr)
        return MemoryKind::kUnknown;
      return is_managed ? MemoryKind::kManaged : MemoryKind::kDevice;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return is_managed ? MemoryKind::kManaged : MemoryKind::kHost;
    default:
      return MemoryKind::kUnknown;
  }
}

PoolPlace place_of(const CUmemLocation& location, MemoryKind kind) {
  const bool has_id = location.type == CU_MEM_LOCATION_TYPE_DEVICE ||
                      location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  return {static_cast<int>(location.type), has_id ? location.id : 0, kind};
}

CUmemoryPool default_pool(Simulator& simulator, const PoolPlace& place) {
  CUmemoryPool& pool = simulator.default_pools[place];
  if (pool == nullptr) {
    CUmemLocation location{};
    location.type = static_cast<CUmemLocationType>(place.location_type);
    location.id = place.location;
    pool = simulator.pools.add(
        {.location = location, .kind = place.kind, .is_default = true});
  }
  return pool;
}

CUmemoryPool current_pool(Simulator& simulator, const PoolPlace& place) {
  const auto found = simulator.current_pools.find(place);
  return found == simulator.current_pools.end() ? default_pool(simulator, place)
                                                : found->second;
}

PoolPlace place_of_device(CUdevice ordinal) {
  return {CU_MEM_LOCATION_TYPE_DEVICE, ordinal, MemoryKind::kDevice};
}

/// `use(simulator, place)` for a place that there is.
template <typename Use>
CUresult at_device(const char* symbol, CUdevice ordinal, const Use& use) {
  return with_device(symbol, ordinal, [&](Simulator& simulator, const Device&) {
    return use(simulator, place_of_device(ordinal));
  });
}

template <typename Use>
CUresult at_location(const char* symbol, const CUmemLocation* location,
                     CUmemAllocationType type, const Use& use) {
  return enter(symbol, Needs::kDriver, [&](Simulator& simulator) {
    if (location == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const MemoryKind kind = kind_of(simulator, *location, type);
    return kind == MemoryKind::kUnknown ? CUDA_ERROR_INVALID_VALUE
                                        : use(simulator, place_of(*location, kind));
  });
}

/// Into `pool`, that of the place which `find` finds.
template <typename Find>
auto into(CUmemoryPool* pool, const Find& find) {
  return [pool, find](Simulator& simulator, const PoolPlace& place) {
    if (pool == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    *pool = find(simulator, place);
    return CUDA_SUCCESS;
  };
}

auto make_current(CUmemoryPool pool) {
  return [pool](Simulator& simulator, const PoolPlace& place) {
    const Pool* const found = simulator.pools.find(pool);
    if (found == nullptr || place_of(found->location, found->kind) != place)
      return CUDA_ERROR_INVALID_VALUE;
    simulator.current_pools[place] = pool;
    return CUDA_SUCCESS;
  };
}

/// The pool, or the device's current one where `pool` is null.
CUresult allocate(const char* symbol, CUdeviceptr* pointer, std::size_t size,
                  const CUmemoryPool* pool, CUstream stream) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    if (pointer == nullptr || size == 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = admit_allocation(simulator, {true, stream});
        refused != CUDA_SUCCESS)
      return refused;
    const CUcontext context = simulator.stream(stream)->context;
    const int here = simulator.device_of(context).ordinal;
    const CUmemoryPool handle =
        pool == nullptr ? current_pool(simulator, place_of_device(here)) : *pool;
    Pool* const from = simulator.pools.find(handle);
    if (from == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    if (from->most_bytes != 0 && size > from->most_bytes - from->used)
      return CUDA_ERROR_OUT_OF_MEMORY;
    const CUdeviceptr made = simulator.allocate(context, size, from->kind);
    if (made == 0)
      return CUDA_ERROR_OUT_OF_MEMORY;
    simulator.allocations[made].pool = handle;
    from->used += size;
    from->most_used = std::max(from->most_used, from->used);
    from->reserved = std::max(from->reserved, from->used);
    from->most_reserved = std::max(from->most_reserved, from->reserved);
    *pointer = made;
    return CUDA_SUCCESS;
  });
}

/// `use(simulator, pool)` for a pool that there is.
template <typename Use>
CUresult in_pool(const char* symbol, CUmemoryPool handle, const Use& use) {
  return with(
      symbol, Needs::kDriver, CUDA_ERROR_INVALID_VALUE,
      [&](Simulator& simulator) { return simulator.pools.find(handle); }, use);
}

int* reuse_of(Pool& pool, CUmemPool_attribute which) {
  const int index = which - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES;
  return index >= 0 && index < static_cast<int>(pool.reuse.size())
             ? &pool.reuse[static_cast<std::size_t>(index)]
             : nullptr;
}

std::uint64_t* figure_of(Pool& pool, CUmemPool_attribute which) {
  switch (which) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return &pool.release_threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return &pool.reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return &pool.most_reserved;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return &pool.used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return &pool.most_used;
    default:
      return nullptr;
  }
}

CUresult set(Pool& pool, CUmemPool_attribute which, const void* value) {
  if (int* const reuse = reuse_of(pool, which)) {
    *reuse = *static_cast<const int*>(value) != 0 ? 1 : 0;
    return CUDA_SUCCESS;
  }
  const auto figure = [&] { return *static_cast<const std::uint64_t*>(value); };
  switch (which) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool.release_threshold = figure();
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:  // to zero alone: from what is there now
      if (figure() != 0)
        return CUDA_ERROR_INVALID_VALUE;
      pool.most_reserved = which == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
                               ? pool.reserved
                               : pool.most_reserved;
      pool.most_used =
          which == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool.used : pool.most_used;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

/// What the device that has the memory can do with it, and the host with its own.
bool is_owner(const Pool& pool, const CUmemLocation& location) {
  if (pool.kind == MemoryKind::kManaged)
    return true;
  if (pool.kind == MemoryKind::kHost)
    return location.type != CU_MEM_LOCATION_TYPE_DEVICE;
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
         location.id == pool.location.id;
}

CUresult set_access(Simulator& simulator, Pool& pool, const CUmemAccessDesc& asked) {
  if (is_owner(pool, asked.location))
    return asked.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_VALUE;
  if (asked.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  if (simulator.device(asked.location.id) == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  pool.access[asked.location.id] = asked.flags;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  return at_device(__func__, ordinal, into(pool, default_pool));
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  return at_device(__func__, ordinal, into(pool, current_pool));
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool) {
  return at_device(__func__, ordinal, make_current(pool));
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                CUmemAllocationType type) {
  return at_location(__func__, location, type, into(pool, default_pool));
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location,
                         CUmemAllocationType type) {
  return at_location(__func__, location, type, into(pool, current_pool));
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type,
                         CUmemoryPool pool) {
  return at_location(__func__, location, type, make_current(pool));
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* asked) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    if (pool == nullptr || asked == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const MemoryKind kind = kind_of(simulator, asked->location, asked->allocType);
    if (kind == MemoryKind::kUnknown)
      return CUDA_ERROR_INVALID_VALUE;
    if (asked->handleTypes != CU_MEM_HANDLE_TYPE_NONE)  // no device here has any
      return CUDA_ERROR_NOT_SUPPORTED;
    *pool = simulator.pools.add(
        {.location = asked->location, .kind = kind, .most_bytes = asked->maxSize});
    return CUDA_SUCCESS;
  });
}

// What was allocated from it stays until it is freed.
CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  return in_pool(__func__, handle, [&](Simulator& simulator, const Pool& pool) {
    if (pool.is_default)
      return CUDA_ERROR_INVALID_VALUE;
    std::erase_if(simulator.current_pools,
                  [&](const auto& each) { return each.second == handle; });
    simulator.pools.erase(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, std::size_t least) {
  return in_pool(__func__, handle, [&](Simulator&, Pool& pool) {
    pool.reserved = std::max<std::uint64_t>(
        pool.used, std::min<std::uint64_t>(pool.reserved, least));
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute which,
                               void* value) {
  return in_pool(__func__, handle, [&](Simulator&, Pool& pool) {
    if (value == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    if (const int* const reuse = reuse_of(pool, which))
      *static_cast<int*>(value) = *reuse;
    else if (const std::uint64_t* const figure = figure_of(pool, which))
      *static_cast<std::uint64_t*>(value) = *figure;
    else
      return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute which,
                               void* value) {
  return in_pool(__func__, handle, [&](Simulator&, Pool& pool) {
    return value == nullptr ? CUDA_ERROR_INVALID_VALUE : set(pool, which, value);
  });
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* asked,
                            std::size_t count) {
  return in_pool(__func__, handle, [&](Simulator& simulator, Pool& pool) {
    CUresult result =
        asked == nullptr && count != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    for (std::size_t i = 0; i < count && result == CUDA_SUCCESS; ++i)
      result = set_access(simulator, pool, asked[i]);
    return result;
  });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                            CUmemLocation* location) {
  return in_pool(__func__, handle, [&](Simulator& simulator, const Pool& pool) {
    if (flags == nullptr || location == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const bool is_device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (is_device && simulator.device(location->id) == nullptr)
      return CUDA_ERROR_INVALID_DEVICE;
    const auto set = pool.access.find(location->id);
    *flags = is_owner(pool, *location) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : is_device && set != pool.access.end() ? set->second
                                                     : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAllocAsync(CUdeviceptr* pointer, std::size_t size, CUstream stream) {
  return allocate(__func__, pointer, size, nullptr, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, std::size_t size,
                                 CUmemoryPool pool, CUstream stream) {
  return allocate(__func__, pointer, size, &pool, stream);
}
