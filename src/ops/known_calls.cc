#include "ops/known_calls.h"

#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "device/launch.h"
#include "library/loaded_kernel.h"
#include "library/service_parts.h"

namespace kiln::ops {
namespace {

constexpr std::size_t kMostWords = 64;  // of a launch; more than any operation has

bool is_empty(const Geometry& geometry) {
  return std::ranges::count(geometry.grid, 0U) > 0;
}

/// The pointer by whose distance `moved` is farther on than `once`.
std::optional<std::size_t> pointer_of(std::uint64_t once, std::uint64_t moved,
                                      std::size_t pointers) {
  for (std::size_t i = 0; i < pointers; ++i) {
    if (moved - once == distance_of(i))
      return i;
  }
  return std::nullopt;
}

std::uint64_t address_of(const Argument& argument) {
  return reinterpret_cast<std::uintptr_t>(argument.begin);
}

/// A thread's calls, each in the place that its bytes' hash names.
struct Slot {
  std::size_t asked_for = 0;  // the hash of a call that was not known
  std::string call;
  std::optional<KnownCall> known;
};
constexpr std::size_t kSlots = 256;

Slot& slot_of(std::size_t hash) {
  thread_local std::unique_ptr<std::array<Slot, kSlots>> slots;
  if (slots == nullptr)
    slots = std::make_unique<std::array<Slot, kSlots>>();
  return (*slots)[hash % kSlots];
}

}  // namespace

std::optional<KnownCall> KnownCall::of(Service& service,
                                       std::span<const std::uintptr_t> addresses,
                                       const ListedPlan& once, const ListedPlan& moved,
                                       const std::vector<Launched>& launched) {
  KnownCall known;
  const std::size_t count = launched.size();
  bool fits = once.launches.size() == count && moved.launches.size() == count &&
              once.memory.size() == moved.memory.size();
  for (std::size_t i = 0; fits && i < once.memory.size(); ++i)
    fits = known.add(once.memory[i], moved.memory[i], addresses);
  KernelMemory& kernels = ServiceParts::kernels_of(service);
  for (std::size_t i = 0; fits && i < count; ++i)
    fits = kernels.keeps(LoadedKernel::of(launched[i].kernel)) &&
           known.add(once.launches[i], moved.launches[i], launched[i], addresses);
  return fits ? std::optional(std::move(known)) : std::nullopt;
}

bool KnownCall::add(const Argument& once, const Argument& moved,
                    std::span<const std::uintptr_t> addresses) {
  if (once.access == Access::kNone || (once.size_bytes == 0 && moved.size_bytes == 0))
    return true;  // of a pointer that must be null, the key says that it is
  const auto pointer =
      pointer_of(address_of(once), address_of(moved), addresses.size());
  if (!pointer || once.size_bytes != moved.size_bytes ||
      !std::has_single_bit(once.element_bytes))
    return false;
  memory_.push_back({.pointer = *pointer,
                     .offset = address_of(once) - addresses[*pointer],
                     .size_bytes = once.size_bytes,
                     .misaligned = once.element_bytes - 1,
                     .is_written = once.access != Access::kReads});
  return true;
}

bool KnownCall::add(const Launch& once, const Launch& moved, const Launched& launched,
                    std::span<const std::uintptr_t> addresses) {
  const std::vector<std::uint64_t>& to = moved.arguments.words();
  Ready ready{.function = LoadedKernel::function_of(launched.kernel),
              .geometry = launched.geometry,
              .words = once.arguments.words(),
              .moved = {},
              .places = once.arguments.places()};
  if (ready.function == nullptr || once.kernel != moved.kernel ||
      once.parameters != moved.parameters || once.extents != moved.extents ||
      once.entry != moved.entry || ready.places != moved.arguments.places() ||
      ready.words.size() != to.size() || ready.words.size() > kMostWords)
    return false;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (ready.words[i] == to[i])
      continue;
    const auto pointer = pointer_of(ready.words[i], to[i], addresses.size());
    if (!pointer)
      return false;
    ready.words[i] -= addresses[*pointer];
    ready.moved.push_back({i, *pointer});
  }
  if (!is_empty(ready.geometry))
    launches_.push_back(std::move(ready));
  return true;
}

bool KnownCall::accepts(std::span<const std::uintptr_t> addresses) const {
  const auto begin_of = [addresses](const Memory& memory) {
    return addresses[memory.pointer] + memory.offset;
  };
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    const Memory& one = memory_[i];
    const std::uint64_t begin = begin_of(one);
    if ((begin & one.misaligned) != 0)
      return false;
    for (std::size_t k = 0; k < i; ++k) {
      const Memory& other = memory_[k];
      if ((one.is_written || other.is_written) &&
          begin < begin_of(other) + other.size_bytes &&
          begin_of(other) < begin + one.size_bytes)
        return false;
    }
  }
  return true;
}

Result<void> KnownCall::launch(Service& service, CUstream_st* stream,
                               std::span<const std::uintptr_t> addresses) const {
  for (const Ready& ready : launches_) {
    std::array<std::uint64_t, kMostWords> words;  // NOLINT: written below
    std::array<void*, kMostWords> arguments;      // NOLINT
    std::ranges::copy(ready.words, words.begin());
    for (const Word& word : ready.moved) words[word.at] += addresses[word.pointer];
    for (std::size_t i = 0; i < ready.places.size(); ++i)
      arguments[i] = &words[ready.places[i]];
    ServiceParts::memory_hits_of(service).add();
    KILN_TRY(device::launch_again(*ready.function, ready.geometry, stream,
                                  std::span(arguments).first(ready.places.size())));
  }
  return {};
}

const KnownCall* KnownCalls::find(std::string_view call) {
  const Slot& slot = slot_of(std::hash<std::string_view>()(call));
  return slot.known && slot.call == call ? &*slot.known : nullptr;
}

bool KnownCalls::should_add(std::string_view call) {
  const std::size_t hash = std::hash<std::string_view>()(call);
  Slot& slot = slot_of(hash);
  return slot.call != call && std::exchange(slot.asked_for, hash) == hash;
}

void KnownCalls::add(std::string_view call, std::optional<KnownCall> known) {
  Slot& slot = slot_of(std::hash<std::string_view>()(call));
  slot.call = call;
  slot.known = std::move(known);
}

}  // namespace kiln::ops
