#include "build/config.h"

#include <sys/auxv.h>

#include <algorithm>
#include <cstdlib>

namespace kiln {
namespace {

constexpr std::uint64_t kMostPrecompiledBytes = 2ULL << 30U;  // ten times CUB's

}  // namespace

Environment process_environment() {
  if (::getauxval(AT_SECURE) != 0)
    return [](const std::string&) { return std::nullopt; };
  return [](const std::string& variable) -> std::optional<std::string> {
    // Kiln never calls setenv. A host that calls it while it opens a service races with
    // every reader of the environment.
    const char* value = std::getenv(variable.c_str());  // NOLINT(concurrency-mt-unsafe)
    if (value == nullptr)
      return std::nullopt;
    return value;
  };
}

std::uint64_t precompiled_limit(const Config& config) {
  return config.precompiled_limit_bytes.value_or(
      std::min(kMostPrecompiledBytes, config.cache_limit_bytes / 5));
}

}  // namespace kiln
