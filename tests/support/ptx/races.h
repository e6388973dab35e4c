// Finds two accesses of different threads to the same shared memory, one of them a
// write, with no barrier between: clocks of warps that barriers join (Flanagan and
// Freund, "FastTrack", 2009), and within a warp the last time that two lanes met at a
// bar.warp.sync.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/ptx/program.h"

namespace kiln::ptx {

class Races {
 public:
  enum class Access : std::uint8_t { kRead, kWrite, kAtomic };

  /// Watches so many bytes; before that it watches none.
  void watch(std::size_t bytes, unsigned warps);
  [[nodiscard]] bool is_watching() const { return !cells_.empty(); }

  /// What another thread did there without a barrier between; nullopt: nothing.
  struct Conflict {
    Access before = Access::kRead;
    unsigned thread = 0;
    const syntax::Statement* statement = nullptr;
  };
  std::optional<Conflict> note(unsigned thread, std::uint64_t at, std::size_t bytes,
                               Access access, const syntax::Statement* statement);
  /// The warps of a mask met at a barrier.
  void join_warps(std::uint32_t warps);
  /// The lanes of a mask met.
  void join_lanes(unsigned warp, std::uint32_t lanes);

 private:
  struct Mark {
    std::uint32_t thread = 0;
    std::uint32_t clock = 0;  // of its warp; 0: none
    std::uint32_t step = 0;   // of the warp's own meetings
    bool is_atomic = false;
    const syntax::Statement* statement = nullptr;
  };
  /// Of four bytes: the last write, and the last reads of two threads.
  struct Cell {
    Mark write{};
    std::array<Mark, 2> reads{};
  };
  [[nodiscard]] bool is_before(const Mark& mark, unsigned thread) const;

  std::vector<Cell> cells_;
  std::vector<std::vector<std::uint32_t>>
      clocks_;  // of each warp: what it knows of each
  struct Meetings {
    std::uint32_t step = 1;
    std::array<std::array<std::uint32_t, kLanes>, kLanes> last{};
  };
  std::vector<Meetings> meetings_;
};

}  // namespace kiln::ptx
