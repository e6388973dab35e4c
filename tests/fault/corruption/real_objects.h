// Objects of the real NVRTC, built by the real service, and what a hit on them must
// give: a copy made before anything was damaged, which no cache can reach.

#pragma once

#include <array>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "codec/digest.h"
#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln::test {

struct RealObject {
  Digest key;
  Bytes file;  // as published
  Bytes payload;
  std::vector<std::string> lowered_names;
};

struct RealObjects {
  RealObject sm_80;        // scale<float>
  RealObject sm_90;        // the same for another architecture
  RealObject ptx;          // the same for a device that this NVRTC does not know
  RealObject other_code;   // sm_80, the same entry point and size, another constant
  RealObject other_entry;  // sm_80, another kernel
  RealObject larger;       // sm_80, the same entry point, more code

  [[nodiscard]] std::array<const RealObject*, 6> all() const {
    return {&sm_80, &sm_90, &ptx, &other_code, &other_entry, &larger};
  }
};

/// Errors: kUnavailable (there is no NVRTC here), and those of a build.
[[nodiscard]] Result<RealObjects> build_real_objects();

/// What came of asking a cache for an object.
enum class Answer : std::uint8_t {
  kMiss,
  kRight,  // payload and lowered names as they were built
  kWrong,
};

/// Asks as the service does on every hit.
[[nodiscard]] Answer ask(cache::Cache& cache, const RealObject& object);

/// The options of a service with this root: the checks of a hit are all there.
[[nodiscard]] cache::CacheOptions options_of(const std::filesystem::path& root);

/// Puts the file under the object's name, as a publish would.
void install(const cache::Layout& layout, const RealObject& object);
/// The same with other bytes.
void install(const cache::Layout& layout, const RealObject& object, ByteView file);

}  // namespace kiln::test
