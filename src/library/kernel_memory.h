// The kernels that one service has loaded, found by request object, by name and
// parameters, and by key.

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
    // A SHA-256 is uniform, and so is its sum with the ordinal.
    return std::hash<kiln::Digest>()(place.key) +
           static_cast<std::size_t>(place.device);
  }
};

namespace kiln {

/// How a later request may find this kernel.
enum class FoundBy : bool {
  kKeyAlone,           // another request of the same text may read other headers
  kNameAndParameters,  // they determine the key
};

/// Thread safety: every method may run concurrently. The lock is held only for a table
/// lookup; a request object that was answered before takes no lock at all.
class KernelMemory {
 public:
  using Pointer = std::shared_ptr<const LoadedKernel>;

  KernelMemory();

  /// Null on a miss.
  [[nodiscard]] Pointer find(const Request& request, int device);
  [[nodiscard]] Pointer find(const LoadPlace& place);

  /// Remembers a kernel under its key, so that no other thread has to load it. Of two
  /// kernels the first stays.
  void keep(const LoadPlace& place, const Pointer& kernel);
  /// Remembers that `request` was answered with `kernel`, which is kept under `place`.
  void answer(const Request& request, const LoadPlace& place, const Pointer& kernel,
              FoundBy found_by);
  /// Whether this keeps the kernel until its own end.
  [[nodiscard]] bool keeps(const LoadedKernel& kernel);
  /// Unique in this process: no other service ever has it.
  [[nodiscard]] std::uint64_t service() const { return service_; }

  /// Remembers an answer that no other request may get.
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
  const std::uint64_t service_;

  Mutex mutex_;
  // Entries are never removed: answers stored in requests point to them.
  std::unordered_map<LoadPlace, const Entry> by_key_ KILN_GUARDED_BY(mutex_);
  std::unordered_map<Spelling, const Entry*, SpellingHash, SpellingEqual> by_spelling_
      KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln
