#include "tests/support/simulated_driver/kernel_ptx.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <system_error>

#include "cache/layout.h"
#include "cache/object.h"
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

/// Null for what is no object, or none any more.
std::optional<cache::StoredObject> read_object(const std::filesystem::path& path,
                                               const Digest& key) {
  auto read = read_file(path, cache::kMaxObjectBytes);
  if (!read || !*read)
    return std::nullopt;
  const auto bytes = std::make_shared<const Bytes>(**std::move(read));
  auto object = cache::StoredObject::parse(cache::Buffer(bytes, *bytes), key);
  return object ? std::optional(*std::move(object)) : std::nullopt;
}

}  // namespace

std::vector<KernelPtx::Unread> KernelPtx::list_unread(
    const std::filesystem::path& root) const {
  std::vector<Unread> found;
  const cache::Layout layout(root);
  for (unsigned folder = 0; folder < cache::kFolderCount; ++folder) {
    std::error_code failed;  // a folder that is not there has no objects
    for (const auto& each :
         std::filesystem::directory_iterator(layout.object_folder(folder), failed)) {
      const auto key = cache::Layout::key_of(folder, each.path().filename().native());
      if (key && !read_.contains(each.path()))
        found.push_back({each.path(), *key, each.last_write_time(failed)});
    }
  }
  return found;
}

std::optional<std::string> KernelPtx::find(const std::string& sha256) {
  if (const auto known = ptx_.find(sha256); known != ptx_.end())
    return known->second;
  std::vector<Unread> unread;
  for (const auto& root : roots_)
    std::ranges::move(list_unread(root), std::back_inserter(unread));
  std::ranges::move(list_unread(root_of_environment()), std::back_inserter(unread));
  std::ranges::sort(unread, std::ranges::greater{}, &Unread::used);
  for (const Unread& each : unread) {
    read_.insert(each.path);
    const auto object = read_object(each.path, each.key);
    auto ptx = object ? object->ptx() : Result<std::string>();
    if (!ptx || ptx->empty())
      continue;
    const std::string image = Digest::of(object->payload()).hex();
    ptx_[image] = *std::move(ptx);
    if (image == sha256)
      return ptx_[image];
  }
  return std::nullopt;
}

}  // namespace kiln::simulated
