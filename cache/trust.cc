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

std::string say_open(const std::string& component, const struct stat& info) {
  const bool is_of_group = (info.st_mode & S_IWOTH) == 0 && !S_ISLNK(info.st_mode);
  return fmt::format(
      "{} (owner {}, {}mode {:04o}) can be changed by another user; make it yours and "
      "chmod go-w it{}, or choose another cache folder",
      component, info.st_uid,
      is_of_group ? fmt::format("group {}, ", info.st_gid) : std::string(),
      info.st_mode & 07777U,
      is_of_group ? fmt::format(", or set KILN_TRUSTED_GIDS={} if you trust that group",
                                info.st_gid)
                  : std::string());
}

}  // namespace

TrustPolicy::TrustPolicy(uid_t user, std::vector<uid_t> trusted,
                         std::optional<uid_t> overflow, TrustedGroups groups)
    : user_(user),
      trusted_(std::move(trusted)),
      overflow_(overflow),
      groups_(std::move(groups)) {}

TrustPolicy TrustPolicy::of_this_process(std::vector<uid_t> trusted,
                                         std::vector<gid_t> groups) {
  return {::geteuid(), std::move(trusted), overflow_uid(),
          TrustedGroups(std::move(groups), {::geteuid(), ::getegid()})};
}

TrustPolicy TrustPolicy::below(std::filesystem::path folder) const {
  TrustPolicy policy = *this;
  policy.held_ = std::move(folder);
  return policy;
}

bool TrustPolicy::owner(uid_t uid) const {
  return uid == user_ || uid == 0 ||
         std::find(trusted_.begin(), trusted_.end(), uid) != trusted_.end();
}

bool TrustPolicy::refuses(FileSystem& file_system, const std::string& path) const {
  struct stat info {};
  return file_system.lstat(path.c_str(), info) == 0 && !accepts_file(info);
}

bool TrustPolicy::is_open(const struct stat& info) const {
  return (info.st_mode & S_IWOTH) != 0 ||
         ((info.st_mode & S_IWGRP) != 0 &&
          !(S_ISDIR(info.st_mode) && groups_.accepts(info)));
}

bool TrustPolicy::accepts_component(const struct stat& info, bool last) const {
  const bool root_like =
      info.st_uid == 0 || (!last && overflow_ && info.st_uid == *overflow_);
  // A symbolic link's mode means nothing, but its owner counts.
  if (S_ISLNK(info.st_mode) || !is_open(info))
    return root_like || owner(info.st_uid);
  // In a sticky folder such as /tmp only the owner of a name can replace it, and the
  // next component's owner is checked.
  return !last && root_like && (info.st_mode & S_ISVTX) != 0;
}

TrustPolicy::Walk TrustPolicy::walk(FileSystem& file_system,
                                    const std::filesystem::path& path) const {
  const auto below_held = path.lexically_relative(held_);
  const bool is_below =
      held_ != "/" && !below_held.empty() && *below_held.begin() != "..";
  Walk walk{{}, is_below ? held_ : "/"};
  prepend(walk.rest, is_below ? below_held : path);
  std::filesystem::path& done = walk.at;
  const auto stopped = [&](tl::unexpected<Error> why) {
    walk.outcome = std::move(why);
    return std::move(walk);
  };
  int links = 0;
  for (;;) {
    struct stat info {};
    const int err = file_system.lstat(done.c_str(), info);
    if (err == -ENOENT)
      return walk;
    if (err == -EACCES)
      return stopped(fail(ErrorCode::kIo, say_closed(done.parent_path())));
    if (err != 0)
      return stopped(posix_error("lstat", done, -err));
    const bool is_link = S_ISLNK(info.st_mode);
    if (!accepts_component(info, walk.rest.empty() && !is_link)) {
      walk.is_open = S_ISDIR(info.st_mode) && owner(info.st_uid);
      return stopped(fail(ErrorCode::kUntrusted, is_link || !is_open(info)
                                                     ? say_whose(done.native(), info)
                                                     : say_open(done.native(), info)));
    }
    if (is_link && is_below)
      return stopped(
          fail(ErrorCode::kUntrusted,
               done.native() + " is a link, in a cache folder that is held open"));
    if (is_link) {
      std::string target;
      const int read = file_system.readlink(done.c_str(), target);
      if (read != 0 || ++links > kMaxSymbolicLinks)
        return stopped(posix_error("readlink", done, read != 0 ? -read : ELOOP));
      prepend(walk.rest, target);
      done = target.starts_with('/') ? "/" : done.parent_path();
      continue;
    }
    if (walk.rest.empty())
      return walk;
    const std::string next = std::move(walk.rest.front());
    walk.rest.pop_front();
    done = next == ".." ? done.parent_path() : done / next;
  }
}

}  // namespace kiln::cache
