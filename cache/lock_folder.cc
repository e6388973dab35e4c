#include "cache/lock_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "codec/digest.h"
#include "util/bytes.h"
#include "util/far_mount.h"
#include "util/posix_error.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

constexpr std::size_t kRootIdHex = 16;
constexpr std::string_view kOfUser = "kiln-";

/// The same in every process of this machine that uses this root.
std::string root_id(const Layout& layout) {
  std::error_code ignored;  // on error the path as given is used
  const auto canonical = std::filesystem::weakly_canonical(layout.root(), ignored);
  const auto& path = canonical.empty() ? layout.root() : canonical;
  return Digest::of(as_bytes(path.native())).hex().substr(0, kRootIdHex);
}

std::filesystem::path of_user(const std::filesystem::path& folder, uid_t user) {
  return folder / fmt::format("{}{}", kOfUser, user);
}

/// The file system type of the nearest ancestor that exists.
std::int64_t type_of(FileSystem& file_system, std::filesystem::path path) {
  std::int64_t type = file_system.type(path.c_str());
  while (type == -ENOENT && path.has_relative_path()) {
    path = path.parent_path();
    type = file_system.type(path.c_str());
  }
  return type;
}

tl::unexpected<Error> not_local(const std::filesystem::path& path,
                                std::string_view type) {
  return fail(ErrorCode::kUnavailable,
              "{} is on {}, which is no file system known to be local", path.native(),
              type);
}

/// Makes `path` a local folder that others cannot change, or says why it cannot.
Result<void> settle(FileSystem& file_system, const TrustPolicy& trust,
                    const std::filesystem::path& path) {
  const std::int64_t type = type_of(file_system, path);
  if (type < 0)
    return posix_error("statfs", path, static_cast<int>(-type));
  if (is_network_type(type))
    return not_local(path, file_system_name(type));
  KILN_TRY(trust.check_path(file_system, path));
  int err = make_folders(file_system, path.native());
  if (err == 0)
    err = file_system.writable(path.c_str());
  if (err != 0)
    return posix_error("mkdir", path, -err);
  // Once more, now that every component exists.
  return trust.check_path(file_system, path);
}

}  // namespace

LockFolder find_lock_folder(const Layout& layout, FileSystem& file_system,
                            const TrustPolicy& trust,
                            const std::filesystem::path& runtime_dir,
                            const std::filesystem::path& persistent_dir) {
  const std::string id = root_id(layout);
  std::vector<std::filesystem::path> candidates;
  struct stat root {};
  // A missing root is not created just for its locks.
  if (file_system.stat(layout.root().c_str(), root) == 0)
    candidates.push_back(layout.locks());
  if (!runtime_dir.empty())
    candidates.push_back(runtime_dir / "kiln" / id);
  if (!persistent_dir.empty())
    candidates.push_back(of_user(persistent_dir, ::geteuid()) / id);
  LockFolder folder;
  for (const std::filesystem::path& path : candidates) {
    const auto settled = settle(file_system, trust, path);
    if (settled)
      return {path, {}, folder.refused};
    const Error& error = settled.error();
    folder.why += (folder.why.empty() ? "" : "; ") + error.message;
    folder.refused += error.code == ErrorCode::kUntrusted ? 1 : 0;
  }
  return folder;
}

Result<std::filesystem::path> node_folder(const Layout& layout,
                                          const std::filesystem::path& folder) {
  if (!folder.is_absolute())
    return fail(ErrorCode::kUnavailable, "'{}' is no absolute path", folder.native());
  return of_user(folder, ::geteuid()) / root_id(layout);
}

Result<void> make_node_folder(FileSystem& file_system, const TrustPolicy& trust,
                              const std::filesystem::path& path) {
  if (const auto far = far_mount_of(path))
    return not_local(path, far->type);
  return settle(file_system, trust, path);
}

std::vector<std::pair<uid_t, std::filesystem::path>> node_folders(
    const Layout& layout, const std::filesystem::path& folder) {
  const std::string id = root_id(layout);
  std::vector<std::pair<uid_t, std::filesystem::path>> found;
  if (far_mount_of(folder))
    return found;
  std::error_code end;  // what cannot be listed has none
  for (std::filesystem::directory_iterator each(folder, end), none;
       !end && each != none; each.increment(end)) {
    const std::string name = each->path().filename();
    if (!name.starts_with(kOfUser))
      continue;
    const auto user = number_of<uid_t>(std::string_view(name).substr(kOfUser.size()));
    if (user && each->path() == of_user(folder, *user))  // not also "kiln-007"
      found.emplace_back(*user, each->path() / id);
  }
  return found;
}

}  // namespace kiln::cache
