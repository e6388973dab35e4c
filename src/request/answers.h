// What a request was answered with before, kept with the request itself: the same
// object asked for again finds it without a lock and without looking at its text.

#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "kiln/request.h"

namespace kiln::request {

/// Whom an answer was for: one service of this process, one of its devices.
struct Asker {
  std::uint64_t service = 0;  // a number that no other service of this process has
  int device = 0;
  friend bool operator==(const Asker&, const Asker&) = default;
};

/// Thread safety: every function may run concurrently for one request; find() never
/// waits. Every caller for one service uses the same T.
class Answers {
 public:
  /// Null where there is none. Cost: a few comparisons.
  template <typename T>
  [[nodiscard]] static const T* find(const Request& request, const Asker& asker) {
    return static_cast<const T*>(find_any(request, asker));
  }

  /// `answer` is the service's own and lives as long: nobody asks for a service that is
  /// gone. Of two answers for one asker either may be found.
  template <typename T>
  static void keep(const Request& request, const Asker& asker, const T* answer) {
    keep_any(request, asker,
             std::shared_ptr<const void>(std::shared_ptr<void>(), answer));
  }
  /// `answer` is the request's: it goes with its last copy.
  template <typename T>
  static void own(const Request& request, const Asker& asker,
                  std::shared_ptr<const T> answer) {
    keep_any(request, asker, std::move(answer));
  }

 private:
  [[nodiscard]] static const void* find_any(const Request& request, const Asker& asker);
  static void keep_any(const Request& request, const Asker& asker,
                       std::shared_ptr<const void> answer);
};

}  // namespace kiln::request
