// The kernels that one service has loaded: found by the request itself, by how it is
// spelled, and by key.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "codec/digest.h"
#include "kiln/request.h"
#include "library/loaded_kernel.h"
#include "util/mutex.h"
#include "util/striped.h"

namespace kiln {

/// One artifact on one device.
struct LoadPlace {
  Digest key;
  int device = 0;
  friend bool operator==(const LoadPlace&, const LoadPlace&) = default;
};

}  // namespace kiln

template <>
struct std::hash<kiln::LoadPlace> {
  std::size_t operator()(const kiln::LoadPlace& place) const noexcept {
    // A SHA-256 is uniform: what is added stays so.
    return std::hash<kiln::Digest>()(place.key) +
           static_cast<std::size_t>(place.device);
  }
};

namespace kiln {

/// How later requests find a kernel that this one was given.
enum class FoundBy : bool {
  kKeyAlone,           // another request of the same text may read other headers
  kNameAndParameters,  // they determine the key
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

  /// Remembers a kernel under its key, before anybody else has to load it; the first of
  /// two stays.
  void keep(const LoadPlace& place, const Pointer& kernel);
  /// Remembers that `request` was answered with `kernel`, which is kept under `place`.
  void answer(const Request& request, const LoadPlace& place, const Pointer& kernel,
              FoundBy found_by);
  /// Remembers an answer that is for no other request.
  void answer_alone(const Request& request, int device, const Pointer& kernel);

 private:
  // Many threads may ask for one kernel at once, thousands of times a second.
  using Entry = StripedPointer<const LoadedKernel>;

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
  // Nothing is ever taken out: answers kept with requests point at what is in here.
  std::unordered_map<LoadPlace, const Entry> by_key_ KILN_GUARDED_BY(mutex_);
  std::unordered_map<Spelling, const Entry*, SpellingHash, SpellingEqual> by_spelling_
      KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln
