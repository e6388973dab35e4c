// cuDNN, opened at run time. table.h has the functions themselves.

#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "attention/cudnn_version.h"
#include "kiln/result.h"
#include "util/library_search.h"

namespace kiln::attention {

struct CudnnTable;

/// The message where there is none.
inline constexpr std::string_view kNoCudnn =
    "no libcudnn.so.9 found: install cuDNN 9, or set KILN_CUDNN";

/// Every cuDNN of this machine, the preferred one first. `explicit_path`, which the
/// setting `set_by` names, takes precedence over all others; empty: none is given.
/// Errors: as find_libraries().
[[nodiscard]] Result<std::vector<LibraryCandidate>> find_cudnn(
    const std::filesystem::path& explicit_path, const LibraryPlaces& places,
    std::string_view set_by = "KILN_CUDNN");

/// The parts of a cuDNN that this process has loaded.
[[nodiscard]] std::vector<std::string> loaded_cudnn_parts();

/// The names of all functions that Kiln calls.
[[nodiscard]] std::vector<std::string> cudnn_functions();

/// A handle to a cuDNN library, which stays open until the process ends. Copies are
/// cheap and stay valid. Thread safety: every method may run concurrently.
class CudnnLibrary {
 public:
  /// Opens it and calls it. cuDNN ends the process where it lacks a part of its own, so
  /// a worker must have called it before, as PlanService sees to. `graph` is the
  /// libcudnn_graph that it used there: it is opened first, so that the same one is
  /// found here. Opening the same library twice gives the same table. Needs no device.
  /// Errors: kUnavailable (one of them cannot be opened, with the loader's message; it
  /// lacks a function).
  [[nodiscard]] static Result<CudnnLibrary> open(
      const std::filesystem::path& path, const std::filesystem::path& graph = {});

  [[nodiscard]] const std::filesystem::path& path() const;
  [[nodiscard]] CudnnVersion version() const;
  [[nodiscard]] const CudnnTable& table() const { return *table_; }

  /// Makes process_is_ending() true before any library that is loaded by now is
  /// destroyed. Call it after cuDNN has loaded libraries of its own: those are
  /// destroyed before the ones loaded earlier.
  static void watch_the_end();

  /// The process is ending: cuDNN's libraries are destroyed or about to be. No function
  /// of theirs may be called any more, not even to destroy an object.
  [[nodiscard]] static bool process_is_ending();

 private:
  explicit CudnnLibrary(const CudnnTable* table) : table_(table) {}

  const CudnnTable* table_;  // never destroyed
};

}  // namespace kiln::attention
