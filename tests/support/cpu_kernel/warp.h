// The lanes of a warp meet: who is there, who is missing, who gets what. It knows
// nothing of fibers or of the order of threads.

#pragma once

#include <array>
#include <string>
#include <string_view>

#include "kiln/result.h"
#include "tests/support/cpu_kernel/cpu_kernel.h"

namespace kiln_cpu {

[[nodiscard]] std::string_view to_string(Collective collective);

/// What a lane brings.
struct Visit {
  Collective what = Collective::kSync;
  unsigned mask = 0;
  unsigned value = 0;
  int argument = 0;
  void* operands = nullptr;  // of matrices: matrices.h says what
};

/// "shuffle_xor with mask 0xffffffff"
[[nodiscard]] std::string to_string(const Visit& visit);

/// Lanes with disjoint masks may be at different collectives. Thread safety: none.
class Warp {
 public:
  /// `lane` is here. Gives the lanes, `lane` among them, that have all they wait for
  /// and go on; 0 while some are missing. Errors: kInvalidArgument for a mask without
  /// the lane itself, a lane of the mask that waits at something else, a lane read that
  /// is not in the mask, and matrices with less than the whole warp.
  [[nodiscard]] kiln::Result<unsigned> join(int lane, const Visit& visit);

  /// Of the last collective that `lane` has gone on from.
  [[nodiscard]] unsigned result(int lane) const { return results_[index(lane)]; }

  /// What a lane in waiting() waits for.
  [[nodiscard]] unsigned waiting() const { return waiting_; }
  [[nodiscard]] const Visit& visit(int lane) const { return visits_[index(lane)]; }

 private:
  static std::size_t index(int lane) { return static_cast<std::size_t>(lane); }
  [[nodiscard]] kiln::Result<void> complete(unsigned mask);
  [[nodiscard]] kiln::Result<unsigned> shuffled(int lane) const;
  [[nodiscard]] unsigned combined(int lane) const;

  std::array<Visit, kWarpLanes> visits_{};
  std::array<unsigned, kWarpLanes> results_{};
  unsigned waiting_ = 0;
};

}  // namespace kiln_cpu
