// The kernels that one service has loaded: found by the request itself, by how it is
// spelled, and by key.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "cache/digest.h"
#include "kiln/request.h"
#include "loaded_kernel.h"
#include "util/mutex.h"

namespace kiln {

/// One artifact on one device.
struct LoadPlace {
  cache::Digest key;
  int device = 0;
  friend bool operator==(const LoadPlace&, const LoadPlace&) = default;
};

}  // namespace kiln

template <>
struct std::hash<kiln::LoadPlace> {
  std::size_t operator()(const kiln::LoadPlace& place) const noexcept {
    // A SHA-256 is uniform: what is added stays so.
    return std::hash<kiln::cache::Digest>()(place.key) +
           static_cast<std::size_t>(place.device);
  }
};

namespace kiln {

/// What an answer may be found by later.
enum class Answering : std::uint8_t {
  kThisRequest,  // it was built from other inputs than its key says
  kItsKey,       // another request of the same text may have read other headers
  kItsSpelling,  // name and parameters say all
};

/// Thread safety: every method may run concurrently. Nobody waits for more than a look
/// into a table, and a request object that was answered before not even for that.
class KernelMemory {
 public:
  using Pointer = std::shared_ptr<const LoadedKernel>;

  KernelMemory();

  /// Null where there is none.
  [[nodiscard]] Pointer find(const Request& request, int device);
  [[nodiscard]] Pointer find(const LoadPlace& place);

  /// Remembers a kernel under its key, before anybody else has to load it.
  void keep(const LoadPlace& place, const Pointer& kernel);
  /// Remembers what `request` was answered with.
  void keep(const Request& request, int device, const Pointer& kernel,
            Answering answering);

 private:
  struct Spelling {
    Request request;
    int device = 0;
  };
  struct SpellingHash {
    std::size_t operator()(const Spelling& spelling) const noexcept;
  };
  struct SpellingEqual {
    bool operator()(const Spelling& a, const Spelling& b) const noexcept;
  };
  const std::uint64_t service_;  // a number of its own in this process

  Mutex mutex_;
  std::unordered_map<Spelling, Pointer, SpellingHash, SpellingEqual> by_spelling_
      KILN_GUARDED_BY(mutex_);
  std::unordered_map<LoadPlace, Pointer> by_key_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln
