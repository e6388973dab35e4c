#include "cache/trusted_groups.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "cache/file_system.h"
#include "util/read_file.h"
#include "util/text.h"

namespace kiln::cache {
namespace {

constexpr std::uint64_t kMostBytes = 16U << 20U;
constexpr std::int64_t kOverlayfs = 0x794C7630;

/// Calls `visit` with the fields of each line; false if the file cannot be read.
bool for_each_line(
    const std::filesystem::path& file,
    const std::function<void(const std::vector<std::string_view>&)>& visit) {
  const auto read =
      read_lines(file, kMostBytes, [&](std::string_view line) -> Result<void> {
        std::vector<std::string_view> fields;
        for (bool is_last = false; !is_last;) {
          is_last = line.find(':') == std::string_view::npos;
          fields.push_back(next_part(line, ":"));
        }
        visit(fields);
        return {};
      });
  return read.has_value();
}

bool is_number(std::string_view text, std::uint32_t number) {
  return number_of<std::uint32_t>(text) == number;
}

}  // namespace

TrustedGroups::TrustedGroups(std::vector<gid_t> named, GroupQuestion question)
    : named_(std::move(named)), question_(std::move(question)), asks_(true) {}

bool TrustedGroups::accepts(const struct stat& info) const {
  return asks_ && (std::ranges::find(named_, info.st_gid) != named_.end() ||
                   is_private(info.st_gid) || is_of_this_container(info));
}

bool TrustedGroups::is_private(gid_t group) const {
  std::string user;
  int users = 0;  // whose primary group it is
  const bool has_users = for_each_line(question_.passwd, [&](const auto& fields) {
    if (fields.size() < 4 || !is_number(fields[3], group))
      return;
    ++users;
    if (is_number(fields[2], question_.user))
      user = fields[0];
  });
  if (!has_users || users != 1 || user.empty())
    return false;
  int groups = 0;
  bool is_of_user_alone = false;
  const bool has_groups = for_each_line(question_.groups, [&](const auto& fields) {
    if (fields.size() < 4 || !is_number(fields[2], group))
      return;
    ++groups;
    is_of_user_alone = fields[0] == user && (fields[3].empty() || fields[3] == user);
  });
  return has_groups && groups == 1 && is_of_user_alone;
}

bool TrustedGroups::is_of_this_container(const struct stat& info) const {
  if (info.st_gid != 0 || question_.group != 0 || question_.user == 0)
    return false;
  struct stat root {};
  FileSystem& files = *question_.files;
  if (files.type(question_.root.c_str()) != kOverlayfs ||
      files.stat(question_.root.c_str(), root) != 0 || root.st_dev != info.st_dev)
    return false;
  bool is_known = false;
  const bool has_users = for_each_line(question_.passwd, [&](const auto& fields) {
    is_known = is_known || (fields.size() > 2 && is_number(fields[2], question_.user));
  });
  return has_users && !is_known;
}

}  // namespace kiln::cache
