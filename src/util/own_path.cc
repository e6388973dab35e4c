#include "util/own_path.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kiln {
namespace {

bool is_own(const struct stat& info, const std::filesystem::path& path) {
  if (S_ISLNK(info.st_mode) || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return false;
  struct stat around {};
  return info.st_uid == ::geteuid() || info.st_uid == 0 ||
         (::stat(path.parent_path().c_str(), &around) == 0 &&
          info.st_uid == around.st_uid);
}

}  // namespace

bool is_own_path(const std::filesystem::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && is_own(info, path);
}

Result<void> check_own_folder(const std::filesystem::path& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0 ||
      (!S_ISDIR(info.st_mode) && !S_ISLNK(info.st_mode)) || is_own(info, folder))
    return {};  // whoever makes it, or writes into it, sees what is wrong else
  return fail(
      ErrorCode::kUntrusted,
      fmt::format("{} is not a folder of this user alone: delete it", folder.native()));
}

}  // namespace kiln
