// The PTX of a cubin: that of Kiln's object of it, in a cache on disk. A cubin by
// itself has machine code alone.

#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace kiln::simulated {

/// One thread at a time.
class KernelPtx {
 public:
  /// Also looks below this root, before KILN_CACHE_DIR or the default place.
  void add_root(std::filesystem::path root) {
    roots_.insert(roots_.begin(), std::move(root));
  }

  /// Of the image with that SHA-256; nullopt where no object has it. Reads what was
  /// stored since the last call.
  [[nodiscard]] std::optional<std::string> find(const std::string& sha256);

 private:
  void read_new(const std::filesystem::path& root);

  std::vector<std::filesystem::path> roots_;
  std::set<std::filesystem::path> read_;
  std::map<std::string, std::string> ptx_;  // by SHA-256
};

}  // namespace kiln::simulated
