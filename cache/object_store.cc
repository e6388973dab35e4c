#include "cache/object_store.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "cache/object_header.h"
#include "cache/unix_time.h"
#include "util/little_endian.h"
#include "util/posix_error.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln::cache {
namespace {

constexpr int kMaxTries = 4;  // three retries if the file changes under us
constexpr std::int64_t kMarkEveryNs = 3600LL * 1'000'000'000;
constexpr std::uint64_t kMaxMetadataBytes = 16ULL << 20U;
constexpr int kObjectFlags = O_RDONLY | kNoLinkFlags;

bool is_missing(int err) {
  return err == -ENOENT || err == -ENOTDIR;
}

bool is_transient(int err) {
  return err == -ESTALE || err == -EBUSY;
}

Result<Bytes> read_at(FileSystem& file_system, int fd, std::size_t size,
                      std::uint64_t offset) {
  Bytes bytes(size);
  const ssize_t n = pread_all(file_system, fd, bytes.data(), size, offset);
  if (n < 0)
    return posix_error("read", "object", static_cast<int>(-n));
  if (static_cast<std::size_t>(n) < size)
    return fail(ErrorCode::kCorrupt, "it ends too early");
  return bytes;
}

/// Of a source's preimage.
std::optional<std::string> program_named_in(ByteView preimage) {
  const auto fields = Fields::decode(preimage);
  const auto name = fields ? fields->find("program_name") : std::nullopt;
  return name ? std::optional<std::string>(*name) : std::nullopt;
}

}  // namespace

ObjectStore::ObjectStore(const Layout& layout, FileSystem& file_system,
                         const TrustPolicy& trust, Counters& counters,
                         ObjectStoreOptions options)
    : layout_(layout),
      file_system_(file_system),
      trust_(trust),
      counters_(counters),
      options_(std::move(options)),
      objects_(
          UniqueFd(std::max(-1, file_system.hold_folder(layout.objects().c_str())))) {}

Result<std::optional<StoredObject>> ObjectStore::find(const Digest& key,
                                                      std::string_view target) const {
  Opened opened = open_checked(key, Touch::kYes, target);
  if (auto refused = opened.refusal())
    return tl::unexpected(*std::move(refused));
  return std::move(opened.object);
}

Result<std::optional<StoredObject>> ObjectStore::inspect(const Digest& key) const {
  Opened opened = open_with_retries(key, Touch::kNo);
  if (opened.outcome == OpenOutcome::kCorrupt)
    return fail(ErrorCode::kCorrupt, "{} is corrupt ({}): {}", layout_.object(key),
                to_string(opened.check), opened.detail);
  if (auto refused = opened.refusal())
    return tl::unexpected(*std::move(refused));
  return std::move(opened.object);
}

ObjectStore::Opened ObjectStore::open_checked(const Digest& key, Touch touch,
                                              std::string_view target) const {
  Opened opened = open_with_retries(key, touch);
  if (opened.object && !target.empty() && opened.object->target() != target) {
    opened.outcome = OpenOutcome::kCorrupt;
    opened.check = Check::kTarget;
    opened.detail =
        fmt::format("it is for {}, not for {}", opened.object->target(), target);
    opened.object.reset();
  }
  count(opened);
  if (opened.outcome == OpenOutcome::kCorrupt)
    std::ignore = quarantine(key, opened.info, opened.check);  // a miss either way
  return opened;
}

ObjectStore::Opened ObjectStore::open_with_retries(const Digest& key,
                                                   Touch touch) const {
  if (objects_) {
    Opened opened = open_once(key, touch, PathFrom::kObjects);
    if (opened.outcome == OpenOutcome::kObject)
      return opened;
    // The folder may have been replaced, or the host have closed our descriptor.
  }
  Opened opened{.outcome = OpenOutcome::kAgain};
  for (int i = 0; i < kMaxTries && opened.outcome == OpenOutcome::kAgain; ++i)
    opened = open_once(key, touch, PathFrom::kRoot);
  if (opened.outcome == OpenOutcome::kAgain)
    opened.outcome = OpenOutcome::kUnreadable;
  return opened;
}

int ObjectStore::open_object(const std::string& path, PathFrom from) const {
  if (from == PathFrom::kRoot)
    return file_system_.open(path.c_str(), kObjectFlags, 0);
  const char* const name = path.c_str() + layout_.objects().size() + 1;
  return file_system_.open_in(objects_.get(), name, kObjectFlags);
}

int ObjectStore::stat_folder(const std::string& path, PathFrom from,
                             struct stat& info) const {
  const std::size_t end = path.find_last_of('/');
  if (from == PathFrom::kRoot)
    return file_system_.lstat(path.substr(0, end).c_str(), info);
  const std::size_t begin = layout_.objects().size() + 1;
  return file_system_.stat_in(objects_.get(), path.substr(begin, end - begin).c_str(),
                              info);
}

ObjectStore::Opened ObjectStore::open_once(const Digest& key, Touch touch,
                                           PathFrom from) const {
  const std::string path = layout_.object(key);
  const int fd = open_object(path, from);
  if (is_missing(fd))
    return {.outcome = OpenOutcome::kMissing};
  if (fd == -ELOOP || fd == -ENXIO)
    return {.outcome = OpenOutcome::kUntrusted,
            .detail = fmt::format("{} is no file", path)};
  if (fd < 0)
    return {
        .outcome = is_transient(fd) ? OpenOutcome::kAgain : OpenOutcome::kUnreadable,
        .detail = posix_message("open", path, -fd)};
  const UniqueFd owner(fd);
  struct stat info {};
  struct stat folder {};
  int err = file_system_.fstat(fd, info);
  if (err == 0)
    err = stat_folder(path, from, folder);
  if (err != 0)
    return {.outcome = is_transient(err) || is_missing(err) ? OpenOutcome::kAgain
                                                            : OpenOutcome::kUnreadable,
            .detail = posix_message("stat", path, -err)};
  if (!S_ISREG(info.st_mode) || !trust_.accepts(info) || !accepts_folder(folder)) {
    return {
        .outcome = OpenOutcome::kUntrusted,
        .detail = fmt::format(
            "{} is not used: it, or its folder, is not a file that only you, root or "
            "a trusted user can write (owner {}, mode {:04o})",
            path, info.st_uid, info.st_mode & 07777U),
        .info = info};
  }
  Opened opened = read_object(fd, key, info);
  opened.info = info;
  if (opened.outcome == OpenOutcome::kObject && touch == Touch::kYes)
    mark_used(fd, key, info);
  return opened;
}

ObjectStore::Opened ObjectStore::read_object(int fd, const Digest& key,
                                             const struct stat& info) const {
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > kMaxObjectBytes)
    return {.outcome = OpenOutcome::kCorrupt,
            .check = Check::kSize,
            .detail = fmt::format("{} bytes", size)};
  Buffer bytes(size);
  const ssize_t n = pread_all(file_system_, fd, bytes.data(), size, 0);
  if (n < 0) {
    const int err = static_cast<int>(n);
    return {
        .outcome = is_transient(err) ? OpenOutcome::kAgain : OpenOutcome::kUnreadable,
        .detail = posix_message("read", layout_.object(key), -err)};
  }
  if (static_cast<std::uint64_t>(n) < size)
    return {.outcome = OpenOutcome::kAgain,
            .detail = "it became shorter while it was read"};
  auto object = StoredObject::parse(std::move(bytes), key);
  if (!object)
    return {.outcome = OpenOutcome::kCorrupt,
            .check = object.error().check,
            .detail = object.error().detail};
  if (options_.payload_check) {
    if (const auto checked = options_.payload_check(*object); !checked)
      return {.outcome = OpenOutcome::kCorrupt,
              .check = Check::kPayload,
              .detail = checked.error().message};
  }
  return {.outcome = OpenOutcome::kObject, .object = std::move(*object)};
}

void ObjectStore::mark_used(int fd, const Digest& key, const struct stat& info) const {
  const std::int64_t now = unix_now_ns();
  // This also corrects a stamp in the future, from a clock that was wrong.
  if (options_.access == Access::kReadOnly ||
      std::abs(now - to_ns(info.st_mtim)) < kMarkEveryNs)
    return;
  // Another user's object cannot be marked; its last use stays its time of publish.
  if (file_system_.touch(fd) == 0 && options_.on_used)
    options_.on_used(key, now);
}

void ObjectStore::count(const Opened& opened) const {
  if (opened.outcome == OpenOutcome::kCorrupt)
    counters_.add_corrupt(opened.check);
  if (opened.outcome == OpenOutcome::kUntrusted)
    counters_.add(Counter::kUntrusted);
  if (opened.outcome == OpenOutcome::kUnreadable)
    counters_.add(Counter::kUnreadable);
}

Result<std::uint64_t> ObjectStore::remove(const Digest& key) const {
  const std::string path = layout_.object(key);
  if (options_.access == Access::kReadOnly)
    return fail(ErrorCode::kUnavailable, "{} is read-only", path);
  struct stat info {};
  int err = file_system_.lstat(path.c_str(), info);
  if (err == 0)
    err = file_system_.unlink(path.c_str());
  if (is_missing(err))
    return 0U;
  if (err != 0)
    return posix_error("unlink", path, -err);
  return static_cast<std::uint64_t>(info.st_size);
}

Result<std::optional<Entry>> ObjectStore::describe(const Digest& key) const {
  const std::string path = layout_.object(key);
  const int fd = file_system_.open(path.c_str(), kObjectFlags, 0);
  if (is_missing(fd))
    return std::nullopt;
  if (fd < 0)
    return posix_error("open", path, -fd);
  const UniqueFd owner(fd);
  struct stat info {};
  if (const int err = file_system_.fstat(fd, info); err != 0)
    return posix_error("stat", path, -err);
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || size < header::kBytes || size > kMaxObjectBytes)
    return fail(ErrorCode::kCorrupt, "{} is no object", path);
  const Bytes head = KILN_TRY(read_at(file_system_, fd, header::kBytes, 0));
  if (as_text(ByteView(head).first(header::kMagic.size())) != header::kMagic ||
      load_le<std::uint32_t>(head, header::kVersion) != kFormatVersion)
    return fail(ErrorCode::kCorrupt, "{} is no object", path);
  const header::Parsed parsed = KILN_TRY(header::decode(head, size));
  const header::Section& section = parsed.sections[1];
  if (section.stored_bytes > kMaxMetadataBytes || parsed.key != key)
    return fail(ErrorCode::kCorrupt, "{} is another object", path);
  const Bytes encoded =
      KILN_TRY(read_at(file_system_, fd, section.stored_bytes, section.offset));
  Metadata metadata = KILN_TRY(Metadata::decode(encoded));
  if (metadata.template_name.empty() && !metadata.program &&
      parsed.kind != Kind::kFiles) {
    // Older versions named a source's file in the preimage alone.
    const header::Section& preimage = parsed.sections[2];
    metadata.program = program_named_in(
        KILN_TRY(read_at(file_system_, fd, preimage.stored_bytes, preimage.offset)));
  }
  Entry entry = entry_of(key, parsed.kind, std::move(metadata));
  entry.size_bytes = size;
  entry.last_used_ns = to_ns(info.st_mtim);
  return entry;
}

Result<std::vector<Digest>> ObjectStore::list_keys(unsigned folder) const {
  const std::string path = layout_.object_folder(folder);
  std::vector<std::string> names;
  const int err = file_system_.list(path.c_str(), names);
  if (err != 0 && !is_missing(err))
    return posix_error("list", path, -err);
  std::vector<Digest> keys;
  keys.reserve(names.size());
  for (const std::string& name : names) {
    if (const auto key = Layout::key_of(folder, name))
      keys.push_back(*key);
  }
  return keys;
}

Result<std::vector<ObjectFile>> ObjectStore::list(unsigned folder) const {
  std::vector<ObjectFile> files;
  for (const Digest& key : KILN_TRY(list_keys(folder))) {
    ObjectFile file{key, {}};
    if (file_system_.lstat(layout_.object(key).c_str(), file.info) == 0)
      files.push_back(file);  // an object deleted meanwhile is not listed
  }
  return files;
}

std::optional<ObjectProblem> ObjectStore::verify(const Digest& key) const {
  Opened opened = open_with_retries(key, Touch::kNo);
  using What = ObjectProblem::What;
  ObjectProblem problem{What::kCorrupt, key,        layout_.object(key), {},
                        opened.detail,  opened.info};
  if (opened.outcome == OpenOutcome::kMissing)
    return std::nullopt;
  if (const auto refused = opened.refusal()) {
    problem.what =
        refused->code == ErrorCode::kUntrusted ? What::kUntrusted : What::kUnreadable;
    return problem;
  }
  if (opened.outcome == OpenOutcome::kCorrupt) {
    problem.check = opened.check;
    return problem;
  }
  const auto verified = opened.object->verify_fully();
  if (verified)
    return std::nullopt;
  problem.check = verified.error().check;
  problem.detail = verified.error().detail;
  return problem;
}

bool ObjectStore::quarantine(const Digest& key, const struct stat& seen,
                             Check check) const {
  if (options_.access == Access::kReadOnly)
    return false;
  const std::string path = layout_.object(key);
  const std::string folder = layout_.quarantine().native();
  const std::string aside =
      fmt::format("{}/{}-{}-{}", folder, key.hex(), unix_now_ns(), to_string(check));
  const auto is_seen = [&](const std::string& name) {
    struct stat info {};
    return file_system_.lstat(name.c_str(), info) == 0 && info.st_dev == seen.st_dev &&
           info.st_ino == seen.st_ino;
  };
  if (!is_seen(path))
    return false;
  // Through a link the object would go where another user wants it.
  if (struct stat info{};
      file_system_.lstat(folder.c_str(), info) == 0 && !accepts_folder(info)) {
    counters_.add(Counter::kUntrusted);
    return false;
  }
  int err = file_system_.rename(path.c_str(), aside.c_str());
  if (err == -ENOENT && make_folders(file_system_, folder) == 0)
    err = file_system_.rename(path.c_str(), aside.c_str());
  if (err != 0)
    return false;
  if (!is_seen(aside)) {
    // We moved a good object that another process has just published: move it back.
    std::ignore = file_system_.rename_no_replace(aside.c_str(), path.c_str());
    return false;  // at worst its key is built once more
  }
  counters_.add(Counter::kQuarantined);
  return true;
}

}  // namespace kiln::cache
