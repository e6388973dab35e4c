// The PTX of a cubin: that of Kiln's object of it, in a cache on disk. A cubin by
// itself has machine code alone.

#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codec/digest.h"

namespace kiln::simulated {

/// One thread at a time.
class KernelPtx {
 public:
  /// Also looks below this root, before KILN_CACHE_DIR or the default place.
  void add_root(std::filesystem::path root) {
    roots_.insert(roots_.begin(), std::move(root));
  }

  /// Of the image with that SHA-256; nullopt where no object has it. Reads objects
  /// until it is found, those that were used last first.
  [[nodiscard]] std::optional<std::string> find(const std::string& sha256);

 private:
  struct Unread {
    std::filesystem::path path;
    Digest key;
    std::filesystem::file_time_type used;
  };
  [[nodiscard]] std::vector<Unread> list_unread(
      const std::filesystem::path& root) const;

  std::vector<std::filesystem::path> roots_;
  std::set<std::filesystem::path> read_;
  std::map<std::string, std::string> ptx_;  // of the objects read, by SHA-256
};

}  // namespace kiln::simulated
