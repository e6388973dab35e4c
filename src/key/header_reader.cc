#include "key/header_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "util/try.h"

namespace kiln::key {
namespace {

std::string because_of(const BuildTimeMacro& macro) {
  return fmt::format("which names {} in line {}: each build gives it another value",
                     macro.name, macro.line);
}

bool has_include_next(const std::vector<Directive>& list) {
  return std::any_of(list.begin(), list.end(), [](const Directive& directive) {
    return directive.lookup == Lookup::kNext || directive.lookup == Lookup::kNextQuoted;
  });
}

}  // namespace

Result<Directives> HeaderReader::directives_of(const std::string& name,
                                               std::string_view text) {
  auto found = KILN_TRY(about(name, find_directives(text, stop_)));
  KILN_TRY(add(name, text, found));
  return found;
}

Result<void> HeaderReader::add(const std::string& name, std::string_view text,
                               const Directives& found) {
  if (found.build_time && !varying_)
    varying_ = VaryingText{name, because_of(*found.build_time)};
  names_program_ |= found.names_file;
  return count_bytes(text.size(), name);
}

Result<const ReadFile*> HeaderReader::read(const FoundHeader& found) {
  if (const auto known = files_.find(*found.file); known != files_.end())
    return &known->second;
  ReadHeader header{*found.file, store_.find(*found.file), true};
  const bool is_new = header.content == nullptr;
  if (is_new) {
    header = KILN_TRY(store_.read(found.path, now_, limits_.file_bytes, stop_));
    ++files_read_;
  }
  // If the path has become another file's meanwhile, that may be known already.
  const auto [entry, is_first] = files_.try_emplace(header.stamp);
  ReadFile& file = entry->second;
  if (!is_first)
    return &file;
  const std::uint64_t bytes = header.content->bytes;
  KILN_TRY(count_bytes(bytes, found.path));
  file.stamp = header.stamp;
  file.content = std::move(header.content);
  file.settled = header.settled;
  if (file.settled && file.stamp.reliable) {
    used_.push_back({file.stamp, file.content});
    has_new_headers_ |= is_new;
  }
  file.has_include_next = has_include_next(file.content->directives.list);
  if (!header.is_steady)
    file.varies = "which was written to each time that it was read";
  else if (bytes != file.stamp.size)
    file.varies = fmt::format(
        "which has {} bytes where the file system says {}: it can change without a "
        "trace",
        bytes, file.stamp.size);
  else if (const auto& macro = file.content->directives.build_time)
    file.varies = because_of(*macro);
  return &file;
}

void HeaderReader::finish(const std::string& memo, HeaderSnapshot& headers,
                          HeaderScanStats& stats) {
  stats.files_read = files_read_;
  if (has_new_headers_)
    stats.memo = store_.save(memo, used_);
  headers.varying = std::move(varying_);
  headers.names_program = names_program_;
}

Result<void> HeaderReader::count_bytes(std::uint64_t bytes, std::string_view name) {
  bytes_ += bytes;
  if (bytes_ <= limits_.bytes)
    return {};
  return fail(ErrorCode::kResourceLimit,
              "{} can include over {} bytes of headers, the last of them {}: remove "
              "#include directives or include directories",
              program_name_, limits_.bytes, name);
}

}  // namespace kiln::key
