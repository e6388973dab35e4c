#include "tests/support/kernels/guarded_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace kiln_cpu {
namespace {

constexpr std::size_t kAlignment = 16;  // of what one instruction moves

std::vector<GuardedMemory*>& all_memory() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const all = new std::vector<GuardedMemory*>();
  return *all;
}

std::size_t page_size() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

[[noreturn]] void give_up(const char* call, std::size_t bytes) {
  std::perror(call);
  fmt::print(stderr, "guarded memory: {} of {} bytes failed\n", call, bytes);
  std::abort();
}

std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

/// From the first page's begin to the memory's.
std::size_t offset_of(std::size_t bytes, std::size_t page_bytes, Placement placement) {
  const std::size_t past = placement.past_boundary.value_or(0) % kAlignment;
  if (placement.exact == Side::kBegin) {
    return past;
  }
  const std::size_t exact = page_bytes - bytes;
  return placement.past_boundary
             ? exact - (exact % kAlignment + kAlignment - past) % kAlignment
             : exact;
}

}  // namespace

GuardedMemory::GuardedMemory(std::string name, std::size_t bytes, Placement placement)
    : name_(std::move(name)),
      bytes_(bytes),
      page_bytes_(bytes == 0 && !placement.past_boundary
                      ? 0
                      : round_up(bytes + (placement.past_boundary ? kAlignment : 0),
                                 page_size())) {
  const std::size_t whole = page_bytes_ + 2 * kGuardBytes;
  void* const map = ::mmap(nullptr, whole, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) {
    give_up("mmap", whole);
  }
  map_ = static_cast<std::byte*>(map);
  protect(PROT_READ | PROT_WRITE);
  begin_ = map_ + kGuardBytes + offset_of(bytes_, page_bytes_, placement);
  all_memory().push_back(this);
}

GuardedMemory::~GuardedMemory() {
  std::erase(all_memory(), this);
  ::munmap(map_, page_bytes_ + 2 * kGuardBytes);
}

void GuardedMemory::protect(int access) {
  if (page_bytes_ != 0 && ::mprotect(map_ + kGuardBytes, page_bytes_, access) != 0) {
    give_up("mprotect", page_bytes_);
  }
  is_writable_ = (access & PROT_WRITE) != 0;
}

std::optional<std::string> GuardedMemory::describe(std::uintptr_t address) const {
  const auto map = reinterpret_cast<std::uintptr_t>(map_);
  if (address < map || address >= map + page_bytes_ + 2 * kGuardBytes) {
    return std::nullopt;
  }
  const auto at =
      static_cast<std::intptr_t>(address) - reinterpret_cast<std::intptr_t>(begin_);
  return fmt::format("byte {} of {}, which has {} bytes", at, name_, bytes_);
}

std::string GuardedMemory::describe_any(std::uintptr_t address) {
  for (const GuardedMemory* memory : all_memory()) {
    if (auto description = memory->describe(address)) {
      return *description;
    }
  }
  return fmt::format("address {:#x}, where no memory of the launch is", address);
}

const std::vector<GuardedMemory*>& GuardedMemory::all() {
  return all_memory();
}

}  // namespace kiln_cpu
