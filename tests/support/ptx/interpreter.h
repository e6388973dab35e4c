// Runs kernels of PTX on the CPU, as a device would: one function, launch(). What it
// finds wrong it says as a device's error (a CUresult) or, what a device would not
// notice, as a note, in the words of compute-sanitizer's tools.
//
// Thread safety: programs may be shared; launches run concurrently, each on its thread.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "tests/support/ptx/program.h"

namespace kiln::ptx {

using Extent = std::array<unsigned, 3>;

/// Memory that a kernel may touch.
struct Stretch {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint8_t* set =
      nullptr;  // a byte a byte: not 0 where it was written; null: all was
  bool is_read_only = false;
};

/// The device's memory: addresses are those of this process. Called by one thread.
class GlobalMemory {
 public:
  virtual ~GlobalMemory() = default;
  /// The stretch around an address.
  virtual std::optional<Stretch> find(std::uint64_t address) = 0;
  /// What is wrong with an address that has none, for people.
  [[nodiscard]] virtual std::string describe(std::uint64_t address) const;
};

struct Schedule {
  std::uint64_t seed = 0;     // 0: lanes together, warps and blocks in their order
  bool splits_warps = false;  // now and then, where independent scheduling allows it
  bool delays_copies = true;  // cp.async lands when it is waited for, else at once
  bool is_noisy = false;      // approximations err as the ISA permits
  unsigned blocks_at_once = 4;
  /// Instructions of warps; beyond them it is CUDA_ERROR_LAUNCH_TIMEOUT. 0: no limit.
  std::uint64_t limit = 0;
};

struct Checks {
  bool unset = false;      // reads of what was never written
  bool races = false;      // in shared memory
  bool conflicts = false;  // counts wavefronts and sectors
};

/// Of one kind of access at one instruction, over all warps.
struct Traffic {
  std::uint64_t accesses = 0;
  std::uint64_t wavefronts = 0;        // of shared memory
  std::uint64_t least_wavefronts = 0;  // that so many bytes need
  std::uint64_t sectors = 0;           // of 32 bytes, of global memory
  std::uint64_t least_sectors = 0;
};

struct Report {
  std::uint64_t instructions = 0;                // of warps
  std::map<std::string, std::uint64_t> notes{};  // and how often
  std::map<std::string, Traffic> traffic{};      // by the statement's text
  std::string printed{};                         // by printf
};

struct Launch {
  std::string_view entry{};
  Extent grid{1, 1, 1};
  Extent block{1, 1, 1};
  Extent cluster{1, 1, 1};
  std::size_t dynamic_shared_bytes = 0;
  std::span<const std::byte> parameters{};  // packed as the entry has them
  unsigned multiprocessors = 1;
  /// The blocks of the grid that run, by their numbers, x fastest.
  std::uint64_t first_block = 0;
  std::uint64_t most_blocks = UINT64_MAX;
};

struct LaunchError {
  int result = 0;  // a CUresult
  std::string why;
};

/// Addresses of the module's variables.
using Symbols = std::map<std::string, std::uint64_t, std::less<>>;

/// The entries, and their parameters' layout. Null for an unknown name.
[[nodiscard]] const Function* find_entry(const Program& program, std::string_view name);

/// Errors: as a device's. The report holds what was found until then.
[[nodiscard]] tl::expected<void, LaunchError> launch(
    const Program& program, const Launch& launch, const Symbols& symbols,
    GlobalMemory& memory, const Schedule& schedule, const Checks& checks,
    Report& report);

}  // namespace kiln::ptx
