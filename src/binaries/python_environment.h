// The packages of a Python environment, and which of them brought a library. Starts no
// Python.

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kiln/result.h"

namespace kiln::binaries {

struct EnvironmentLibrary {
  std::filesystem::path path;
  std::string distribution;  // "torch 2.10.0"; "" if no package names the file
};

/// Where packages of the environment `root` are: its site-packages and dist-packages;
/// `root` itself, if it is such a folder; none, if it is no environment.
[[nodiscard]] std::vector<std::filesystem::path> package_folders(
    const std::filesystem::path& root);

/// Each library below a folder of packages, by path. Errors: kNotFound, kIo.
[[nodiscard]] Result<std::vector<EnvironmentLibrary>> libraries_in(
    const std::filesystem::path& packages);

/// The environment that `python3` would have here: VIRTUAL_ENV, CONDA_PREFIX, else that
/// of the first python3 on PATH. Empty: there is none.
[[nodiscard]] std::filesystem::path active_environment();

}  // namespace kiln::binaries
