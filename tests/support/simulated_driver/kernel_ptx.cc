#include "tests/support/simulated_driver/kernel_ptx.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "cache/object.h"
#include "codec/digest.h"
#include "util/read_file.h"

namespace kiln::simulated {
namespace {

std::filesystem::path root_of_environment() {
  const auto variable = [](const char* name) -> std::filesystem::path {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): tests set it before they open the library
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (auto given = variable("KILN_CACHE_DIR"); !given.empty())
    return given;
  if (const auto cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return cache / "kiln";
  return variable("HOME") / ".cache" / "kiln";
}

/// The files two folders below; what cannot be read is left out.
std::vector<std::filesystem::path> objects_of(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> files;
  std::error_code failed;
  for (const auto& folder :
       std::filesystem::directory_iterator(root / "objects" / "v1", failed)) {
    std::error_code inner;
    for (const auto& each : std::filesystem::directory_iterator(folder.path(), inner))
      files.push_back(each.path());
  }
  return files;
}

}  // namespace

void KernelPtx::read_new(const std::filesystem::path& root) {
  for (const auto& path : objects_of(root)) {
    const auto key = Digest::from_hex(path.parent_path().filename().string() +
                                      path.filename().string());
    if (!key || !read_.insert(path).second)
      continue;
    const auto bytes = read_file(path, cache::kMaxObjectBytes);
    if (!bytes || !*bytes)
      continue;
    cache::Buffer buffer((*bytes)->size());
    std::copy((*bytes)->begin(), (*bytes)->end(), buffer.data());
    const auto object = cache::StoredObject::parse(std::move(buffer), *key);
    if (!object)
      continue;
    auto ptx = object->ptx();
    if (ptx && !ptx->empty())
      ptx_[Digest::of(object->payload()).hex()] = std::move(*ptx);
  }
}

std::optional<std::string> KernelPtx::find(const std::string& sha256) {
  auto found = ptx_.find(sha256);
  if (found == ptx_.end()) {
    for (const auto& root : roots_) read_new(root);
    read_new(root_of_environment());
    found = ptx_.find(sha256);
  }
  return found == ptx_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace kiln::simulated
