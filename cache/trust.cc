#include "cache/trust.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <deque>
#include <string>
#include <utility>

#include "util/posix_error.h"
#include "util/proc_file.h"

namespace kiln::cache {
namespace {

constexpr int kMaxSymbolicLinks = 40;  // as the kernel's own limit

std::optional<uid_t> overflow_uid() {
  // The initial namespace maps every uid onto itself in one line.
  std::string map = read_proc_file("/proc/self/uid_map").value_or("");
  map.erase(std::unique(map.begin(), map.end(),
                        [](char a, char b) { return a == ' ' && b == ' '; }),
            map.end());
  if (map.empty() || map == " 0 0 4294967295\n")
    return std::nullopt;
  const std::string text = read_proc_file("/proc/sys/kernel/overflowuid").value_or("");
  uid_t uid = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), uid);
  return parsed.ec == std::errc() ? uid : 65534;
}

void prepend(std::deque<std::string>& names, const std::filesystem::path& path) {
  std::deque<std::string> front;
  for (const auto& part : path) {
    if (part != "/" && !part.empty() && part != ".")
      front.push_back(part.native());
  }
  names.insert(names.begin(), front.begin(), front.end());
}

/// Nobody but its owner can change it, and the owner may be somebody to trust.
std::string say_whose(const std::string& component, const struct stat& info) {
  return fmt::format(
      "{} (owner {}, mode {:04o}) belongs to another user; if you trust that user, set "
      "KILN_TRUSTED_UIDS={}, or else choose another cache folder",
      component, info.st_uid, info.st_mode & 07777U, info.st_uid);
}

std::string say_closed(const std::filesystem::path& folder) {
  return fmt::format(
      "{} cannot be entered by this user; let its owner chmod a+rx it (a cache: chmod "
      "-R a+rX,go-w), or choose another cache folder",
      folder.native());
}

std::string say_why(const std::string& component, const struct stat& info) {
  if (!S_ISLNK(info.st_mode) && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0)
    return say_whose(component, info);
  return fmt::format(
      "{} (owner {}, mode {:04o}) can be changed by another user; make it yours and "
      "chmod go-w it, or choose another cache folder",
      component, info.st_uid, info.st_mode & 07777U);
}

}  // namespace

TrustPolicy::TrustPolicy(uid_t user, std::vector<uid_t> trusted,
                         std::optional<uid_t> overflow)
    : user_(user), trusted_(std::move(trusted)), overflow_(overflow) {}

TrustPolicy TrustPolicy::of_this_process(std::vector<uid_t> trusted) {
  return {::geteuid(), std::move(trusted), overflow_uid()};
}

bool TrustPolicy::owner(uid_t uid) const {
  return uid == user_ || uid == 0 ||
         std::find(trusted_.begin(), trusted_.end(), uid) != trusted_.end();
}

bool TrustPolicy::refuses(FileSystem& file_system, const std::string& path) const {
  struct stat info {};
  return file_system.lstat(path.c_str(), info) == 0 && !accepts_file(info);
}

bool TrustPolicy::accepts_component(const struct stat& info, bool last) const {
  const bool root_like =
      info.st_uid == 0 || (!last && overflow_ && info.st_uid == *overflow_);
  // A symbolic link's mode means nothing, but its owner counts.
  if (S_ISLNK(info.st_mode))
    return root_like || owner(info.st_uid);
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) == 0)
    return root_like || owner(info.st_uid);
  // In a sticky folder such as /tmp only the owner of a name can replace it, and the
  // next component's owner is checked.
  return !last && root_like && (info.st_mode & S_ISVTX) != 0;
}

Result<void> TrustPolicy::check_path(FileSystem& file_system,
                                     const std::filesystem::path& path) const {
  std::deque<std::string> names;
  prepend(names, path);
  std::filesystem::path done = "/";
  int links = 0;
  for (;;) {
    struct stat info {};
    const int err = file_system.lstat(done.c_str(), info);
    if (err == -ENOENT)
      return {};
    if (err == -EACCES)
      return fail(ErrorCode::kIo, say_closed(done.parent_path()));
    if (err != 0)
      return posix_error("lstat", done, -err);
    if (!accepts_component(info, names.empty() && !S_ISLNK(info.st_mode)))
      return fail(ErrorCode::kUntrusted, say_why(done.native(), info));
    if (S_ISLNK(info.st_mode)) {
      std::string target;
      const int read = file_system.readlink(done.c_str(), target);
      if (read != 0 || ++links > kMaxSymbolicLinks)
        return posix_error("readlink", done, read != 0 ? -read : ELOOP);
      prepend(names, target);
      done = target.starts_with('/') ? "/" : done.parent_path();
      continue;
    }
    if (names.empty())
      return {};
    const std::string next = std::move(names.front());
    names.pop_front();
    done = next == ".." ? done.parent_path() : done / next;
  }
}

}  // namespace kiln::cache
