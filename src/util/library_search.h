// Finds shared libraries that are opened at run time: every file that matches, in the
// order in which they should be tried, and where each was found. Opens none of them.
// Knows where NVIDIA's libraries are installed, not what they are.

#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"

namespace kiln {

/// Where to look, in this order. of_process() fills it; tests fill it by hand. An empty
/// member is not searched.
struct LibraryPlaces {
  std::vector<std::filesystem::path> loaded;  // files this process has loaded
  std::filesystem::path cuda_home;            // CUDA_HOME, else CUDA_PATH
  /// CUDA_HOME, CUDA_PATH, CONDA_PREFIX: whose headers an NVRTC of elsewhere may use.
  std::vector<std::filesystem::path> named_toolkits;
  std::vector<std::filesystem::path> loader_path;      // LD_LIBRARY_PATH
  std::filesystem::path loader_cache;                  // /etc/ld.so.cache
  std::vector<std::filesystem::path> default_folders;  // of the loader
  std::filesystem::path toolkits;     // /usr/local: its cuda and cuda-* folders
  std::filesystem::path system_root;  // "/": where packages put headers
  std::vector<std::filesystem::path> python_environments;  // VIRTUAL_ENV, CONDA_PREFIX
  /// Folders of the program and of Kiln's library. One that is `<packages>/kiln/lib` or
  /// `<packages>/kiln/bin` is that of the Python package kiln: <packages> is searched
  /// before the Python environments. At the end, `<folder>/../../../.deps` is searched.
  std::vector<std::filesystem::path> own_folders;

  /// The places of this process, now. A set-uid program does not read the environment.
  [[nodiscard]] static LibraryPlaces of_process();
};

struct LibraryQuery {
  /// "libnvrtc.so" matches itself and every version of it; "libcuda.so.1" matches
  /// itself and "libcuda.so.1.1", but no bare "libcuda.so", which may be a stub.
  std::string name;
  std::filesystem::path explicit_path;  // comes first: a file, or a folder with one
  std::string explicit_origin;          // who set it: "KILN_NVRTC"
};

struct LibraryCandidate {
  std::filesystem::path path;  // absolute, symbolic links resolved, a regular file
  std::string found_in;        // "KILN_NVRTC", "CUDA_HOME", "the loader's cache", ...
  /// As it was found: a link in a tree of links, as Nix and uv make them, has the rest
  /// of its toolkit beside itself, and not beside what it leads to.
  std::filesystem::path found_at{};
  friend bool operator==(const LibraryCandidate&, const LibraryCandidate&) = default;
};

/// Every file that matches, each once, under the first place that has it; within one
/// folder the highest version first. None found is an empty list.
/// Errors: kUnavailable, when `explicit_path` is set and there is no such library.
[[nodiscard]] Result<std::vector<LibraryCandidate>> find_libraries(
    const LibraryQuery& query, const LibraryPlaces& places);

/// The folders that a variable of the environment lists, such as LD_LIBRARY_PATH; none
/// in a set-uid program.
[[nodiscard]] std::vector<std::filesystem::path> folders_of_variable(const char* name);

/// True for `name` itself and `name` followed by ".<digits>" any number of times.
[[nodiscard]] bool is_version_of(std::string_view file_name, std::string_view name);

}  // namespace kiln
