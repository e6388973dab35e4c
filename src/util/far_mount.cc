#include "util/far_mount.h"

#include <algorithm>
#include <array>
#include <deque>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln {
namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

/// On disks of this machine or in its memory. Every other type may wait for a server:
/// one that is not listed costs a question, and one that is listed wrongly a hang.
constexpr std::array kLocalTypes{
    "aufs"sv,     "bcachefs"sv,  "btrfs"sv,   "cgroup"sv, "cgroup2"sv, "devpts"sv,
    "devtmpfs"sv, "erofs"sv,     "exfat"sv,   "ext2"sv,   "ext3"sv,    "ext4"sv,
    "f2fs"sv,     "hugetlbfs"sv, "iso9660"sv, "jffs2"sv,  "jfs"sv,     "mqueue"sv,
    "nilfs2"sv,   "ntfs3"sv,     "overlay"sv, "proc"sv,   "ramfs"sv,   "reiserfs"sv,
    "rootfs"sv,   "squashfs"sv,  "sysfs"sv,   "tmpfs"sv,  "ubifs"sv,   "udf"sv,
    "vfat"sv,     "xfs"sv,       "zfs"sv};

constexpr int kMostLinks = 40;  // as the kernel follows

/// "\040" is a space, as in /proc/self/mountinfo.
std::string unescaped(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '7'; };
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::all_of(text.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                    text.begin() + static_cast<std::ptrdiff_t>(i) + 4, is_digit)) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool is_local_type(std::string_view type) {
  return std::ranges::find(kLocalTypes, type) != kLocalTypes.end();
}

/// The words of "36 35 98:0 /root /place rw,noatime master:1 - ext4 /dev/sda rw".
std::optional<FarMount> parse_mount(std::string_view line) {
  constexpr std::string_view kDash = " - ";
  const std::size_t dash = line.find(kDash);
  if (dash == std::string_view::npos)
    return std::nullopt;
  const std::string_view rest = line.substr(dash + kDash.size());
  std::string_view place = line.substr(0, dash);
  for (int skipped = 0; skipped < 4; ++skipped) {
    const std::size_t space = place.find(' ');
    if (space == std::string_view::npos)
      return std::nullopt;
    place.remove_prefix(space + 1);
  }
  const std::string_view type = rest.substr(0, rest.find(' '));
  if (type.empty())
    return std::nullopt;
  return FarMount{unescaped(place.substr(0, place.find(' '))), std::string(type)};
}

bool is_below(const std::string& path, const std::string& folder) {
  return folder == "/" || path == folder ||
         (path.starts_with(folder) && path[folder.size()] == '/');
}

/// The mount that `path`, without links, is on: of two at one place the later one.
const FarMount* mount_of(const std::vector<FarMount>& mounts, const std::string& path) {
  const FarMount* best = nullptr;
  for (const FarMount& mount : mounts) {
    if (is_below(path, mount.place.native()) &&
        (best == nullptr || mount.place.native().size() >= best->place.native().size()))
      best = &mount;
  }
  return best;
}

bool is_local(const FarMount* mount) {
  return mount == nullptr || is_local_type(mount->type);
}

}  // namespace

std::string to_string(const FarMount& mount) {
  return mount.type + " at " + mount.place.native();
}

std::optional<FarMount> far_mount_of(const fs::path& path, std::istream& mountinfo) {
  std::vector<FarMount> mounts;
  bool has_far = false;
  for (std::string line; std::getline(mountinfo, line);) {
    if (auto mount = parse_mount(line)) {
      has_far = has_far || !is_local_type(mount->type);
      mounts.push_back(*std::move(mount));
    }
  }
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  if (!has_far || error)
    return std::nullopt;
  std::deque<fs::path> left(whole.begin(), whole.end());
  fs::path done = "/";
  for (int links = 0; !left.empty() && links <= kMostLinks;) {
    const fs::path name = std::exchange(left.front(), {});
    left.pop_front();
    if (name == "..") {
      done = done.parent_path();
      continue;
    }
    const fs::path next = name.empty() || name == "." ? done : done / name;
    const FarMount* const mount = mount_of(mounts, next.native());
    if (!is_local(mount))
      return *mount;
    const fs::path target = fs::read_symlink(next, error);
    if (error) {  // no link, or nothing there: what is behind it is on the same mount
      done = next;
      continue;
    }
    ++links;
    left.insert(left.begin(), target.begin(), target.end());
    if (target.is_absolute())
      done = "/";
  }
  return std::nullopt;
}

std::optional<FarMount> far_mount_of(const fs::path& path) {
  std::ifstream mountinfo("/proc/self/mountinfo");
  return far_mount_of(path, mountinfo);
}

}  // namespace kiln
