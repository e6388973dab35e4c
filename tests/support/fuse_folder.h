// A file system in user space with one folder of small files, answered by a thread of
// the test. The kernel is let keep names and attributes for a minute, as sshfs and NFS
// let it; times are what the test says. Only root may mount it.

#pragma once

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "util/unique_fd.h"

namespace kiln::test {

class FuseFolder {
 public:
  enum class Case : std::uint8_t { kMatters, kIgnored };

  explicit FuseFolder(std::filesystem::path folder, Case names = Case::kMatters)
      : folder_(std::move(folder)), case_(names) {
    std::filesystem::create_directories(folder_);
    device_.reset(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (!device_)
      return;
    const std::string options = "fd=" + std::to_string(device_.get()) +
                                ",rootmode=40000,user_id=0,group_id=0,allow_other";
    mounted_ = ::mount("test", folder_.c_str(), "fuse", MS_NOSUID | MS_NODEV,
                       options.c_str()) == 0;
    if (mounted_)
      server_ = std::thread([this] { serve(); });
  }
  FuseFolder(const FuseFolder&) = delete;
  FuseFolder& operator=(const FuseFolder&) = delete;
  FuseFolder(FuseFolder&&) = delete;
  FuseFolder& operator=(FuseFolder&&) = delete;
  ~FuseFolder() {
    if (!mounted_)
      return;
    ::umount2(folder_.c_str(), MNT_DETACH);  // the server's next read says ENODEV
    server_.join();
  }

  /// False where this machine lets nobody mount one.
  [[nodiscard]] bool is_mounted() const { return mounted_; }

  /// What the server has from now on; the kernel is not told.
  void put(const std::string& name, const std::string& text, std::uint64_t time) {
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find(files_, name, &File::name);
    if (known != files_.end())
      *known = {name, text, time};
    else
      files_.push_back({name, text, time});
  }

 private:
  struct File {
    std::string name;
    std::string text;
    std::uint64_t time;  // of change and of modification, as sshfs has it
  };
  static constexpr std::uint64_t kKept = 60;   // seconds
  static constexpr std::uint64_t kFirst = 10;  // the inode of the first file

  void serve() {
    std::vector<char> request(1U << 18U);
    while (true) {
      const ssize_t n = ::read(device_.get(), request.data(), request.size());
      if (n < 0 && errno == ENODEV)
        return;
      if (n < static_cast<ssize_t>(sizeof(fuse_in_header)))
        continue;
      fuse_in_header header{};
      std::memcpy(&header, request.data(), sizeof header);
      const std::lock_guard lock(mutex_);
      answer(header, request.data() + sizeof header);
    }
  }

  void answer(const fuse_in_header& header, const char* body) {
    switch (header.opcode) {
      case FUSE_INIT: {
        fuse_init_out out{};
        out.major = FUSE_KERNEL_VERSION;
        out.minor = 31;
        out.max_readahead = 4096;
        out.max_write = 4096;
        return reply(header, bytes_of(out));
      }
      case FUSE_LOOKUP: {
        const auto file = std::ranges::find_if(
            files_, [&](const File& each) { return matches(each.name, body); });
        if (file == files_.end())
          return fail(header, ENOENT);
        fuse_entry_out out{};
        out.nodeid = kFirst + static_cast<std::uint64_t>(file - files_.begin());
        out.entry_valid = kKept;
        out.attr_valid = kKept;
        out.attr = attributes(out.nodeid);
        return reply(header, bytes_of(out));
      }
      case FUSE_GETATTR: {
        fuse_attr_out out{};
        out.attr_valid = kKept;
        out.attr = attributes(header.nodeid);
        return reply(header, bytes_of(out));
      }
      case FUSE_OPEN:
      case FUSE_OPENDIR:
        return reply(header, bytes_of(fuse_open_out{}));
      case FUSE_READ:
        return reply(header, part(text_of(header.nodeid), body));
      case FUSE_READDIR:
        return reply(header, part(list(), body));
      case FUSE_RELEASE:
      case FUSE_RELEASEDIR:
        return reply(header, "");
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
        return;
      default:
        return fail(header, ENOSYS);
    }
  }

  [[nodiscard]] bool matches(const std::string& name, const std::string& wanted) const {
    return case_ == Case::kMatters ? name == wanted
                                   : std::ranges::equal(name, wanted, {}, lower, lower);
  }
  static int lower(char c) { return std::tolower(static_cast<unsigned char>(c)); }

  [[nodiscard]] const std::string& text_of(std::uint64_t inode) const {
    return files_.at(inode - kFirst).text;
  }

  [[nodiscard]] fuse_attr attributes(std::uint64_t inode) const {
    fuse_attr attributes{};
    attributes.ino = inode;
    attributes.nlink = 1;
    attributes.mode = S_IFDIR | 0755;
    if (inode < kFirst)
      return attributes;
    const File& file = files_.at(inode - kFirst);
    attributes.mode = S_IFREG | 0644;
    attributes.size = file.text.size();
    attributes.mtime = file.time;
    attributes.ctime = file.time;
    return attributes;
  }

  [[nodiscard]] std::string list() const {
    std::string entries;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const std::string& name = files_[i].name;
      const std::size_t size =
          FUSE_DIRENT_ALIGN(offsetof(fuse_dirent, name) + name.size());
      fuse_dirent entry{};
      entry.ino = kFirst + i;
      entry.off = entries.size() + size;
      entry.namelen = static_cast<std::uint32_t>(name.size());
      entry.type = S_IFREG >> 12U;
      std::string raw(size, '\0');
      std::memcpy(raw.data(), &entry, offsetof(fuse_dirent, name));
      name.copy(raw.data() + offsetof(fuse_dirent, name), name.size());
      entries += raw;
    }
    return entries;
  }

  static std::string part(const std::string& whole, const char* body) {
    fuse_read_in wanted{};
    std::memcpy(&wanted, body, sizeof wanted);
    return wanted.offset < whole.size() ? whole.substr(wanted.offset, wanted.size) : "";
  }

  template <typename Out>
  static std::string bytes_of(const Out& out) {
    std::string bytes(sizeof out, '\0');
    std::memcpy(bytes.data(), &out, sizeof out);
    return bytes;
  }

  void reply(const fuse_in_header& request, const std::string& body, int error = 0) {
    fuse_out_header header{};
    header.len = static_cast<std::uint32_t>(sizeof header + body.size());
    header.error = -error;
    header.unique = request.unique;
    const std::string all = bytes_of(header) + body;
    // A request that was given up meanwhile takes no answer.
    std::ignore = ::write(device_.get(), all.data(), all.size());
  }
  void fail(const fuse_in_header& request, int error) { reply(request, "", error); }

  const std::filesystem::path folder_;
  const Case case_;
  UniqueFd device_;
  bool mounted_ = false;
  std::thread server_;
  std::mutex mutex_;
  std::vector<File> files_;
};

}  // namespace kiln::test
