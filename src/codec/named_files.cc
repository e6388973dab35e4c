#include "codec/named_files.h"

#include <limits.h>

#include <algorithm>

#include "codec/fields.h"
#include "util/try.h"

namespace kiln {
namespace {

constexpr std::string_view kFile = "file:";
constexpr std::string_view kProgram = "program:";

bool is_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxFileNameBytes || name.find('\0') != name.npos)
    return false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > NAME_MAX)
      return false;
    begin = end + 1;
  }
  return true;
}

/// Is `name` a file in the folder `folder`?
bool is_in(std::string_view folder, std::string_view name) {
  return name.size() > folder.size() && name.starts_with(folder) &&
         name[folder.size()] == '/';
}

/// Of sorted files. Between a folder and what is in it there may be others: "a", "a-b",
/// "a/c".
Result<void> check(const std::vector<NamedFile>& files) {
  if (files.size() > kMaxNamedFiles)
    return fail(ErrorCode::kResourceLimit, "{} files are more than {}", files.size(),
                kMaxNamedFiles);
  std::vector<std::string_view> around;  // each begins the one behind it
  for (const NamedFile& file : files) {
    const std::string_view name = file.name;
    if (!is_name(name))
      return refuse(
          "'{}' is no name of a file: it must be a relative path of at most {} bytes, "
          "without . and ..",
          name, kMaxFileNameBytes);
    while (!around.empty() && !name.starts_with(around.back())) around.pop_back();
    for (const std::string_view other : around) {
      if (other == name || is_in(other, name))
        return refuse("'{}' is given twice, as {}", other,
                      other == name ? "a file" : "a file and as a folder");
    }
    around.push_back(name);
  }
  return {};
}

}  // namespace

Result<void> check_files(std::vector<NamedFile> files) {
  std::ranges::sort(files, {}, &NamedFile::name);
  return check(files);
}

Result<Bytes> encode_files(std::vector<NamedFile> files) {
  std::ranges::sort(files, {}, &NamedFile::name);
  KILN_TRY(check(files));
  Bytes bytes;
  std::size_t size = 0;
  constexpr std::size_t kAround = 32;  // lengths and the longer label
  for (const auto& [name, content, is_program] : files)
    size += name.size() + content.size() + kAround;
  bytes.reserve(size);
  for (const auto& [name, content, is_program] : files)
    append_field(bytes, std::string(is_program ? kProgram : kFile).append(name),
                 as_text(content));
  return bytes;
}

Result<std::vector<NamedFile>> decode_files(ByteView encoded) {
  std::vector<NamedFile> files;
  FieldReader reader(encoded);
  while (const auto field = KILN_TRY(reader.next())) {
    const bool is_program = field->label.starts_with(kProgram);
    if (!is_program && !field->label.starts_with(kFile))
      return fail(ErrorCode::kCorrupt, "'{}' is no file", field->label);
    files.push_back({field->label.substr((is_program ? kProgram : kFile).size()),
                     as_bytes(field->value), is_program});
  }
  if (!std::ranges::is_sorted(files, {}, &NamedFile::name))
    return fail(ErrorCode::kCorrupt, "its files are in no order");
  if (const auto checked = check(files); !checked)
    return fail(ErrorCode::kCorrupt, checked.error().message);
  return files;
}

}  // namespace kiln
