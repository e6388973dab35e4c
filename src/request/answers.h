// Keeps earlier answers to a request in the request itself: a second call with the same
// object finds its answer without a lock and without reading the request's text.

#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "kiln/request.h"

namespace kiln::request {

/// The service of this process, and its device, that an answer is for.
struct AnswerKey {
  std::uint64_t service = 0;  // unique among the services of this process
  int device = 0;
  friend bool operator==(const AnswerKey&, const AnswerKey&) = default;
};

/// Thread safety: every function may run concurrently for one request; find() never
/// waits. Every caller for one service uses the same T.
class Answers {
 public:
  /// Null where there is none. Cost: a few comparisons.
  template <typename T>
  [[nodiscard]] static const T* find(const Request& request, const AnswerKey& key) {
    return static_cast<const T*>(find_any(request, key));
  }

  /// The service owns `answer`, which lives as long as the service: nobody asks for a
  /// service that is gone. If one key has two answers, find() may return either.
  template <typename T>
  static void add_unowned(const Request& request, const AnswerKey& key,
                          const T* answer) {
    add_any(request, key, std::shared_ptr<const void>(std::shared_ptr<void>(), answer));
  }
  /// The request owns `answer` and destroys it with the request's last copy.
  template <typename T>
  static void add_owned(const Request& request, const AnswerKey& key,
                        std::shared_ptr<const T> answer) {
    add_any(request, key, std::move(answer));
  }

 private:
  [[nodiscard]] static const void* find_any(const Request& request,
                                            const AnswerKey& key);
  static void add_any(const Request& request, const AnswerKey& key,
                      std::shared_ptr<const void> answer);
};

}  // namespace kiln::request
