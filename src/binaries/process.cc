#include "binaries/process.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

#include "util/try.h"

namespace kiln::binaries {
namespace {

/// A line of /proc/<pid>/maps (proc(5)): "7f10-7f20 r-xp 00000000 08:01 1234  /path".
struct Mapping {
  std::string range;   // as the file in map_files is named
  std::string device;  // "08:01"
  std::string inode;
  std::string path;  // "" for memory that is of no file
  bool is_code = false;
};

std::string_view take_field(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const std::string_view field = line.substr(0, line.find(' '));
  line.remove_prefix(field.size());
  return field;
}

Mapping parse_mapping(std::string_view line) {
  Mapping mapping;
  mapping.range = take_field(line);
  mapping.is_code = take_field(line).find('x') != std::string_view::npos;
  take_field(line);  // the offset
  mapping.device = take_field(line);
  mapping.inode = take_field(line);
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  if (line.starts_with('/'))
    mapping.path = line;
  return mapping;
}

Result<FileRange> open_mapped(const std::string& process, const Mapping& mapping) {
  constexpr std::string_view kDeleted = " (deleted)";
  // As the process sees the path; of a deleted file the mapping itself, for which the
  // kernel wants a capability.
  const std::string path = mapping.path.ends_with(kDeleted)
                               ? fmt::format("{}/map_files/{}", process, mapping.range)
                               : fmt::format("{}/root{}", process, mapping.path);
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file)
    return fail(
        errno == EPERM || errno == EACCES ? ErrorCode::kUnavailable : ErrorCode::kIo,
        "{} cannot be opened: {}", mapping.path,
        std::generic_category().message(errno));
  return FileRange::of(std::move(file), mapping.path);
}

}  // namespace

Result<std::vector<MappedFile>> mapped_files(pid_t pid) {
  const std::string process = fmt::format("/proc/{}", pid);
  errno = 0;
  std::ifstream maps(process + "/maps");
  const int opened = errno;
  if (!maps && opened == ENOENT)
    return fail(ErrorCode::kNotFound, "there is no process {}", pid);
  std::vector<MappedFile> files;
  std::set<std::pair<std::string, std::string>> seen;
  bool is_empty = true;
  for (std::string line; std::getline(maps, line);) {
    is_empty = false;
    const Mapping mapping = parse_mapping(line);
    if (mapping.is_code && !mapping.path.empty() &&
        seen.emplace(mapping.device, mapping.inode).second)
      files.push_back({mapping.path, open_mapped(process, mapping)});
  }
  if (is_empty)  // refused at the open, or at the first read
    return fail(ErrorCode::kUnavailable,
                "the files of process {} cannot be read: it is another user's, or has "
                "ended; run this as its user or as root",
                pid);
  return files;
}

}  // namespace kiln::binaries
