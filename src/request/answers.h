// What a request was answered with before, kept with the request itself: the same
// object asked for again finds it without a lock and without looking at its text.

#pragma once

#include <cstdint>
#include <memory>

#include "kiln/request.h"

namespace kiln::request {

/// Whom an answer was for: one service of this process, one of its devices.
struct Asker {
  std::uint64_t service = 0;  // a number that no other service of this process has
  int device = 0;
  friend bool operator==(const Asker&, const Asker&) = default;
};

enum class Holding : bool {
  kWeakly,    // it goes when nobody else keeps it
  kStrongly,  // it stays as long as any copy of the request
};

/// Thread safety: both functions may run concurrently for one request; find() never
/// waits. Every caller for one service uses the same T.
class Answers {
 public:
  /// Null where there is none, or none any more. Cost: a few comparisons.
  template <typename T>
  [[nodiscard]] static std::shared_ptr<const T> find(const Request& request,
                                                     const Asker& asker) {
    return std::static_pointer_cast<const T>(find_any(request, asker));
  }

  /// A later answer for the same asker counts where an earlier one has gone.
  static void keep(const Request& request, const Asker& asker,
                   const std::shared_ptr<const void>& answer, Holding holding);

 private:
  [[nodiscard]] static std::shared_ptr<const void> find_any(const Request& request,
                                                            const Asker& asker);
};

}  // namespace kiln::request
