#include "cache/signers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>

#include "cache/file_system.h"
#include "codec/trusted_keys.h"
#include "util/line_file.h"
#include "util/posix_error.h"
#include "util/printable.h"
#include "util/read_file.h"
#include "util/text.h"
#include "util/try.h"
#include "util/unique_fd.h"
#include "util/write_file.h"

namespace kiln::cache {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestFile = 1ULL << 30U;
constexpr std::size_t kLongestSource = 512;
constexpr mode_t kFileMode = 0644;

std::string line_of(const Made& object, const std::string& source) {
  return fmt::format("{} {} {} {}\n", object.key.hex(), object.created_ns,
                     object.payload.hex(), printable(source, kLongestSource));
}

/// nullopt: it is torn.
std::optional<Made> parse(std::string_view& line) {
  const auto key = Digest::from_hex(next_part(line, " "));
  const auto created_ns = number_of<std::int64_t>(next_part(line, " "));
  const auto payload = Digest::from_hex(next_part(line, " "));
  if (!key || !created_ns || !payload || line.empty())
    return std::nullopt;
  return Made{*key, *created_ns, *payload};
}

ino_t inode_at(const fs::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

/// Again, where keep() has replaced the file that was open: it knew the old one only.
Result<void> append(const fs::path& path, const std::string& lines) {
  constexpr int kMostTries = 3;
  for (int tries = 0; tries < kMostTries; ++tries) {
    const ino_t before = inode_at(path);
    KILN_TRY(KILN_TRY(LineFile::open(path, LineFile::Takes::kOwnFiles))->add(lines));
    if (before == 0 || before == inode_at(path))
      return {};
  }
  return {};
}

/// From `begin` to its end.
Result<std::string> rest_of(const UniqueFd& file, const fs::path& path,
                            std::uint64_t begin) {
  std::string text;
  std::array<std::byte, 65536> chunk{};
  ssize_t size = 0;
  while ((size = real_file_system().pread(file.get(), chunk.data(), chunk.size(),
                                          begin + text.size())) > 0)
    text += as_text(ByteView(chunk).first(static_cast<std::size_t>(size)));
  if (size < 0)
    return posix_error("read", path, static_cast<int>(-size));
  return text;
}

}  // namespace

Made made(const StoredObject& object) {
  const auto metadata = object.metadata();
  return {object.key(), metadata ? metadata->created_ns : 0, object.payload_digest()};
}

std::vector<KeyId> Signers::keys() const {
  std::vector<KeyId> keys;
  std::error_code error;
  if (folder_.empty() || !folder_.check())
    return keys;
  for (fs::directory_iterator at(folder_.path(), error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename();
    const auto key = parse_key_name(name);
    if (key && folder_.has(name).value_or(false))
      keys.push_back(*key);
  }
  return keys;
}

Result<void> Signers::add(std::span<const Made> objects, const Origin& origin) const {
  if (folder_.empty() || objects.empty() || origin.signers.empty())
    return {};
  KILN_TRY(folder_.check());
  KILN_TRY(make_folder(folder_.path()));
  const Known known = objects.size() > 1 ? read() : Known();
  for (const KeyId& key : origin.signers) {
    KILN_TRY(folder_.has(key_name(key)));
    std::string lines;
    for (const Made& object : objects) {
      const auto before = known.find(object);
      if (before == known.end() ||
          std::ranges::find(before->second, key, &SignedBy::key) ==
              before->second.end())
        lines += line_of(object, origin.source);
    }
    if (!lines.empty())
      KILN_TRY(append(folder_.path() / key_name(key), lines));
  }
  return {};
}

Signers::Known Signers::read() const {
  Known known;
  for (const KeyId& key : keys()) {
    // What cannot be read is not known.
    std::ignore =
        read_lines(folder_.path() / key_name(key), kLargestFile,
                   [&](std::string_view line) -> Result<void> {
                     if (const auto object = parse(line)) {
                       auto& all = known[*object];
                       if (all.empty() || all.back().key != key)
                         all.push_back({key, std::string(line), object->payload});
                     }
                     return {};
                   });
  }
  return known;
}

Result<void> Signers::keep(const std::function<bool(const Digest&)>& is_there) const {
  for (const KeyId& key : keys()) {
    const fs::path path = folder_.path() / key_name(key);
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!file)
      return posix_error("open", path, errno);
    const std::string text = KILN_TRY(rest_of(file, path, 0));
    std::size_t lines = 0;
    std::set<std::string_view> kept;
    for (std::string_view rest = text; !rest.empty(); ++lines) {
      const std::string_view line = next_part(rest, "\n");
      std::string_view parsed = line;
      if (const auto object = parse(parsed); object && is_there(object->key))
        kept.insert(line);
    }
    if (2 * kept.size() > lines || lines == 0)
      continue;
    std::string all;
    for (const std::string_view line : kept) all.append(line) += '\n';
    KILN_TRY(replace_file(path, as_bytes(all), kFileMode));
    const std::string added = KILN_TRY(rest_of(file, path, text.size()));
    if (!added.empty())
      KILN_TRY(append(path, added));
  }
  return {};
}

}  // namespace kiln::cache
