// Finds two accesses of different threads to the same shared memory, one of them a
// write, with no barrier between: clocks of warps that barriers join (Flanagan and
// Freund, "FastTrack", 2009), and within a warp the last time that two lanes met.
// Between warps, what one lane of a warp knows all of its lanes know: a race that only
// that hides is missed, and none is made up.

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
    const syntax::Statement* statement = nullptr;
  };
  std::optional<Conflict> note(unsigned thread, std::uint64_t at, std::size_t bytes,
                               Access access, const syntax::Statement* statement);
  // A barrier, by any number: a thread arrives at it; its phase ends; a thread learns
  // that; it is initialized.
  void release(std::uint64_t barrier, unsigned thread);
  void complete(std::uint64_t barrier);
  void acquire(std::uint64_t barrier, unsigned thread);
  void forget(std::uint64_t barrier) { arrivals_.erase(barrier); }
  /// The lanes of a mask met.
  void join_lanes(unsigned warp, std::uint32_t lanes);

 private:
  using Clock = std::vector<std::uint32_t>;  // what is known of each warp
  struct Mark {
    std::uint32_t thread = 0;
    std::uint32_t clock = 0;  // of its warp; 0: none
    std::uint32_t step = 0;   // of the meetings of the warp's lanes
    bool is_atomic = false;
    const syntax::Statement* statement = nullptr;
  };
  /// Of four bytes, or of one of them: the last write, and the last reads of two
  /// threads.
  struct Cell {
    Mark write{};
    std::array<Mark, 2> reads{};
    bool is_split = false;
  };
  static constexpr std::size_t kCellBytes = 4;
  [[nodiscard]] bool is_before(const Mark& mark, unsigned thread) const;

  static void raise(Clock& clock, const Clock& by);

  void note(Cell& cell, const Mark& mark, Access access,
            std::optional<Conflict>& found) const;

  std::vector<Cell> cells_;
  std::map<std::size_t, std::array<Cell, kCellBytes>> split_;  // by the cell's index
  std::vector<Clock> clocks_;                                  // of each warp
  /// At a barrier, in a phase.
  struct Arrivals {
    Clock known{};  // of all that arrived
    /// Of each warp, the step behind each lane's arrival; 0: it has not.
    std::map<unsigned, std::array<std::uint32_t, kLanes>> steps{};
  };
  struct OfPhases {
    Arrivals current{};
    Arrivals completed{};
  };
  std::map<std::uint64_t, OfPhases> arrivals_;
  struct Meetings {
    std::uint32_t step = 1;
    std::array<std::array<std::uint32_t, kLanes>, kLanes> last{};
  };
  std::vector<Meetings> meetings_;
};

}  // namespace kiln::ptx
