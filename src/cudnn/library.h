// cuDNN, opened at run time. table.h has the functions themselves.

#pragma once

#include <filesystem>
#include <vector>

#include "attention/cudnn_version.h"
#include "kiln/result.h"
#include "util/library_search.h"

namespace kiln::attention {

struct CudnnTable;

/// Every cuDNN of this machine, the one that is used first; `explicit_path`
/// (KILN_CUDNN) beats all, empty is none. Errors: as find_libraries().
[[nodiscard]] Result<std::vector<LibraryCandidate>> find_cudnn(
    const std::filesystem::path& explicit_path, const LibraryPlaces& places);

/// A handle to a cuDNN library, which stays open until the process ends: copies are
/// cheap and all of them stay valid. Thread safety: every method may run concurrently.
class CudnnLibrary {
 public:
  /// Opening one library twice gives the same table. No device is needed. Errors:
  /// kUnavailable (it cannot be opened, with the loader's words; it lacks a function).
  [[nodiscard]] static Result<CudnnLibrary> open(const std::filesystem::path& path);

  /// The first of find_cudnn(). Errors: kUnavailable, where there is none; those of
  /// open() and find_cudnn().
  [[nodiscard]] static Result<CudnnLibrary> open_installed(
      const std::filesystem::path& explicit_path, const LibraryPlaces& places);

  [[nodiscard]] const std::filesystem::path& path() const;
  [[nodiscard]] CudnnVersion version() const;
  [[nodiscard]] const CudnnTable& table() const { return *table_; }

  /// From now on process_is_ending() tells in time. To be called after cuDNN has loaded
  /// libraries of its own, which end before those that were loaded earlier.
  static void watch_the_end();

  /// cuDNN's libraries have ended with the process, or are about to: nothing of them
  /// may be called, not even to destroy.
  [[nodiscard]] static bool process_is_ending();

 private:
  explicit CudnnLibrary(const CudnnTable* table) : table_(table) {}

  const CudnnTable* table_;  // never destroyed
};

}  // namespace kiln::attention
