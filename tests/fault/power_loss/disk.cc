#include "tests/fault/power_loss/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "cache/file_system.h"
#include "cache/unix_time.h"
#include "codec/digest.h"
#include "tests/support/test.h"
#include "util/read_file.h"
#include "util/unique_fd.h"

namespace kiln::test {
namespace {

constexpr std::uint64_t kMaxBytes = 64ULL << 20U;
constexpr std::int64_t kSecondNs = 1'000'000'000;
constexpr FileNumber kFirstAdded = 1ULL << 62U;

struct stat stat_of(const fs::path& path) {
  struct stat info {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info;
}

void set_mtime(const fs::path& path, std::int64_t mtime_ns) {
  if (mtime_ns == 0)
    return;
  const std::array<timespec, 2> times{
      {{0, UTIME_OMIT}, {mtime_ns / kSecondNs, mtime_ns % kSecondNs}}};
  EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times.data(), 0), 0) << path;
}

void write_file(const fs::path& path, const File& file) {
  cache::FileSystem& real = cache::real_file_system();
  const UniqueFd fd(real.open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600));
  EXPECT_TRUE(fd) << path;
  EXPECT_EQ(cache::write_all(real, fd.get(), file.bytes), 0);
  EXPECT_EQ(real.fchmod(fd.get(), file.mode), 0);
  set_mtime(path, file.mtime_ns);
}

}  // namespace

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

Disk Disk::read(const fs::path& root) {
  Disk disk;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string name = entry.path().lexically_relative(root).native();
    const struct stat info = stat_of(entry.path());
    const std::int64_t mtime_ns = cache::to_ns(info.st_mtim);
    if (S_ISDIR(info.st_mode)) {
      disk.folders.emplace(name, mtime_ns);
      continue;
    }
    disk.names.emplace(name, info.st_ino);
    disk.files[info.st_ino] = {read_file(entry.path(), kMaxBytes).value().value(),
                               info.st_mode & 07777U, mtime_ns};
  }
  return disk;
}

void Disk::write(const fs::path& root) const {
  ASSERT_EQ(::mkdir(root.c_str(), 0700), 0) << root;
  // A folder comes before what is in it.
  for (const auto& [name, mtime_ns] : folders)
    ASSERT_EQ(::mkdir((root / name).c_str(), 0700), 0) << name;
  std::map<FileNumber, fs::path> written;
  for (const auto& [name, number] : names) {
    const auto [first, is_new] = written.emplace(number, root / name);
    if (is_new)
      write_file(first->second, files.at(number));
    else
      ASSERT_EQ(::link(first->second.c_str(), (root / name).c_str()), 0) << name;
  }
  for (const auto& [name, mtime_ns] : folders) set_mtime(root / name, mtime_ns);
}

const File* Disk::find(const std::string& name) const {
  const auto at = names.find(name);
  return at == names.end() ? nullptr : &files.at(at->second);
}

File& Disk::add(const std::string& name, Bytes bytes) {
  const FileNumber number =
      files.empty() ? kFirstAdded : std::max(kFirstAdded, files.rbegin()->first + 1);
  names[name] = number;
  File& file = files[number];
  file.bytes = std::move(bytes);
  return file;
}

void Disk::prune() {
  const auto is_lost = [&](const std::string& path) {
    const std::string folder = folder_of(path);
    return !folder.empty() && !folders.contains(folder);
  };
  // In the order of their names, so that a lost folder takes those below with it.
  for (auto at = folders.begin(); at != folders.end();)
    at = is_lost(at->first) ? folders.erase(at) : std::next(at);
  std::erase_if(names, [&](const auto& name) { return is_lost(name.first); });
  std::map<FileNumber, File> named;
  for (const auto& [name, number] : names) {
    if (!named.contains(number))
      named.emplace(number, std::move(files.at(number)));
  }
  files = std::move(named);
}

std::string Disk::fingerprint() const {
  std::string text;
  for (const auto& [name, mtime_ns] : folders)
    text += name + '/' + std::to_string(mtime_ns) + '\0';
  for (const auto& [name, number] : names) {
    const File& file = files.at(number);
    text += name + '\0' + std::to_string(number) + ' ' + std::to_string(file.mode) +
            ' ' + std::to_string(file.mtime_ns) + '\0' + Digest::of(file.bytes).hex();
  }
  return Digest::of(as_bytes(text)).hex();
}

}  // namespace kiln::test
