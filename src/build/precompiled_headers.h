// Compiles with a precompiled header where one is there for the headers that a source
// begins with, and makes one where a second source begins with the same, be it while
// the first is compiled. Nothing about
// it changes a result: the key knows nothing of it, and every failure is a compile
// without.

#pragma once

#include <cstdint>
#include <functional>
#include <unordered_set>

#include "build/precompiled_store.h"
#include "build/request_keys.h"
#include "cache/cache.h"
#include "compile/protocol/job.h"
#include "kiln/result.h"
#include "util/mutex.h"

namespace kiln {

/// Thread safety: every method may run concurrently; no lock is held across a compile.
class PrecompiledHeaders {
 public:
  using Compile =
      std::function<Result<compile::CompileOutput>(const compile::CompileJob&)>;

  /// `folder`: see precompiled_folder(); empty: every compile is without.
  PrecompiledHeaders(cache::Cache& cache, OwnFolder folder, std::uint64_t limit_bytes);

  /// compile(job), as fast as possible. The files of a precompiled header that was used
  /// are in the output's report, as if they had been opened now. Errors: those of
  /// `compile` for a job without one.
  [[nodiscard]] Result<compile::CompileOutput> compile(const KeyedRequest& request,
                                                       compile::CompileJob job,
                                                       const Compile& compile) const;

 private:
  using Stored = PrecompiledStore::Stored;
  enum class Made : std::uint8_t { kPublished, kTooFew };
  class Compiling;

  [[nodiscard]] std::optional<Stored> find_or_make(const Compiling& now,
                                                   std::string_view prefix,
                                                   const KeyedRequest& request,
                                                   const compile::CompileJob& job,
                                                   const Compile& compile) const;
  [[nodiscard]] Result<Made> make(const Digest& key, std::string_view prefix,
                                  const KeyedRequest& request, compile::CompileJob job,
                                  const Compile& compile) const;

  cache::Cache& cache_;
  const bool is_on_;
  const PrecompiledStore store_;
  mutable Mutex mutex_;
  // Keys of what this process compiles now, once a source.
  mutable std::unordered_multiset<Digest> compiling_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln
