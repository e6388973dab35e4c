// Device memory is host memory, each block known by its address, its size and its
// context.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "tests/support/simulated_driver/simulator.h"
#include "tests/support/simulated_driver/written.h"

namespace kiln::simulated {
namespace {

constexpr std::size_t kAlignment = 256;
/// From here on a block is mapped. AddressSanitizer would fill shadow memory for all of
/// one that malloc gave, an eighth of it, though nobody touches it.
constexpr std::size_t kLeastMapped = std::size_t{1} << 20;

std::size_t rounded_up(std::size_t size, std::size_t unit) {
  return (size + unit - 1) / unit * unit;
}

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

/// Of a mapped block: with a page on each side that nobody may touch.
std::size_t mapped_bytes(std::size_t size) {
  return rounded_up(size, page_bytes()) + 2 * page_bytes();
}

/// Ends where its guard begins, but for the alignment. Null where there is no memory.
void* map_block(std::size_t size) {
  const std::size_t all = mapped_bytes(size);
  void* const map = ::mmap(nullptr, all, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED)
    return nullptr;
  auto* const pages = static_cast<std::byte*>(map) + page_bytes();
  if (::mprotect(pages, all - 2 * page_bytes(), PROT_READ | PROT_WRITE) != 0) {
    ::munmap(map, all);
    return nullptr;
  }
  return static_cast<std::byte*>(map) + all - page_bytes() -
         rounded_up(size, kAlignment);
}

void unmap_block(void* block, std::size_t size) {
  std::byte* const end = static_cast<std::byte*>(block) + rounded_up(size, kAlignment);
  const std::size_t all = mapped_bytes(size);
  ::munmap(end + page_bytes() - all, all);
}

void* make_block(std::size_t size) {
  return size >= kLeastMapped
             ? map_block(size)
             : std::aligned_alloc(kAlignment, rounded_up(size, kAlignment));
}

void end_block(void* block, std::size_t size) {
  if (size >= kLeastMapped)
    unmap_block(block, size);
  else
    std::free(block);
}

}  // namespace

CUdeviceptr Simulator::allocate(CUcontext context, std::size_t size, MemoryKind kind) {
  Device& device = device_of(context);
  const std::size_t left = device.model.memory_bytes - device.allocated_bytes;
  if (size > left)
    return 0;
  void* const memory = make_block(size);
  if (memory == nullptr)
    return 0;
  if (kind == MemoryKind::kDevice)
    device.allocated_bytes += size;
  const auto pointer = reinterpret_cast<CUdeviceptr>(memory);
  allocations[pointer] = {.size = size,
                          .context = context,
                          .device = device.ordinal,
                          .kind = kind,
                          .id = next_id()};
  if (kind == MemoryKind::kDevice && settings.computing.checks.unset)
    written().watch(pointer, size);
  return pointer;
}

bool Simulator::free(CUdeviceptr pointer) {
  const auto found = allocations.find(pointer);
  if (found == allocations.end())
    return false;
  const Allocation& freed = found->second;
  if (freed.kind == MemoryKind::kDevice)
    device(freed.device)->allocated_bytes -= freed.size;
  if (Pool* const pool = pools.find(freed.pool)) {
    pool->used -= freed.size;
    pool->reserved =
        std::max(pool->used, std::min(pool->reserved, pool->release_threshold));
  }
  if (freed.kind != MemoryKind::kRegistered)
    end_block(address_of(pointer), freed.size);
  written().forget(pointer);
  allocations.erase(found);
  return true;
}

bool Simulator::is_allocated(CUdeviceptr pointer, std::size_t size) const {
  const auto found = allocation_at(pointer);
  return found != allocations.end() &&
         size <= found->second.size - (pointer - found->first);
}

std::map<CUdeviceptr, Allocation>::const_iterator Simulator::allocation_at(
    CUdeviceptr pointer) const {
  const auto after = allocations.upper_bound(pointer);
  if (after == allocations.begin())
    return allocations.end();
  const auto found = std::prev(after);
  return pointer - found->first < found->second.size ? found : allocations.end();
}

}  // namespace kiln::simulated
