#include "util/own_path.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "util/read_file.h"
#include "util/try.h"

namespace kiln {

bool is_trusted(const struct stat& info,
                const std::function<std::optional<uid_t>()>& folder_owner) {
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return false;
  return info.st_uid == ::geteuid() || info.st_uid == 0 ||
         folder_owner() == info.st_uid;
}

bool is_secret(const struct stat& info) {
  if ((info.st_mode & (S_IRWXO | S_IWGRP | S_IXGRP)) != 0 ||
      (info.st_uid != ::geteuid() && info.st_uid != 0))
    return false;
  if ((info.st_mode & S_IRGRP) == 0)
    return true;
  // Of root itself a Secret has no bit to write, and a file of one's own has.
  const bool is_own = ::geteuid() == 0 && (info.st_mode & S_IWUSR) != 0;
  if (info.st_uid != 0 || (info.st_gid == 0 && is_own))
    return false;
  std::vector<gid_t> groups(
      static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<std::size_t>(std::max(0, count)));
  groups.push_back(::getegid());
  return std::ranges::find(groups, info.st_gid) != groups.end();
}

OwnFolder::OwnFolder(std::filesystem::path path, std::function<void()> on_refused)
    : path_(std::move(path)), on_refused_(std::move(on_refused)) {}

Result<bool> OwnFolder::has(std::string_view name) const {
  if (!KILN_TRY(check_path(path_)))
    return false;
  return check_path(path_ / name);
}

std::optional<Bytes> OwnFolder::read(std::string_view name,
                                     std::uint64_t max_bytes) const {
  if (!has(name).value_or(false))
    return std::nullopt;
  return read_file(path_ / name, max_bytes).value_or(std::nullopt);
}

Result<void> OwnFolder::check() const {
  // The caller that creates the folder, or writes into it, sees any other problem.
  KILN_TRY(check_path(path_));
  return {};
}

Result<bool> OwnFolder::check_path(const std::filesystem::path& path) const {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0)
    return false;
  const auto folder_owner = [&]() -> std::optional<uid_t> {
    struct stat around {};
    if (::stat(path.parent_path().c_str(), &around) != 0)
      return std::nullopt;
    return around.st_uid;
  };
  if (!S_ISLNK(info.st_mode) && is_trusted(info, folder_owner))
    return true;
  if (on_refused_)
    on_refused_();
  return fail(ErrorCode::kUntrusted, "{} is not of this user alone: delete it",
              path.native());
}

}  // namespace kiln
