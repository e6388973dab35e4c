#include "tests/support/fuse_mount.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <strings.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/test.h"

namespace kiln::test {
namespace {

constexpr std::size_t kMaxWrite = 128 * 1024;
constexpr std::size_t kRequestSize = kMaxWrite + 4096;
constexpr std::uint64_t kNanoseconds = 1'000'000'000;

std::uint64_t nanoseconds_of(std::chrono::milliseconds time) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count());
}

fuse_attr attributes(const struct stat& info) {
  fuse_attr to{};
  to.ino = info.st_ino;
  to.size = static_cast<std::uint64_t>(info.st_size);
  to.blocks = static_cast<std::uint64_t>(info.st_blocks);
  to.atime = static_cast<std::uint64_t>(info.st_atim.tv_sec);
  to.mtime = static_cast<std::uint64_t>(info.st_mtim.tv_sec);
  to.ctime = static_cast<std::uint64_t>(info.st_ctim.tv_sec);
  to.atimensec = static_cast<std::uint32_t>(info.st_atim.tv_nsec);
  to.mtimensec = static_cast<std::uint32_t>(info.st_mtim.tv_nsec);
  to.ctimensec = static_cast<std::uint32_t>(info.st_ctim.tv_nsec);
  to.mode = info.st_mode;
  to.nlink = static_cast<std::uint32_t>(info.st_nlink);
  to.uid = info.st_uid;
  to.gid = info.st_gid;
  to.blksize = static_cast<std::uint32_t>(info.st_blksize);
  return to;
}

/// One request: its header, the struct of its kind, then names or bytes.
class FuseRequest {
 public:
  explicit FuseRequest(std::vector<char> bytes) : bytes_(std::move(bytes)) {
    std::memcpy(&head, bytes_.data(), sizeof head);
    rest_ = std::string_view(bytes_.data(), bytes_.size()).substr(sizeof head);
  }

  template <typename T>
  T take() {
    T value{};
    std::memcpy(&value, rest_.data(), std::min(sizeof value, rest_.size()));
    rest_.remove_prefix(std::min(sizeof value, rest_.size()));
    return value;
  }
  std::string take_name() {
    std::string name(rest_.data());  // the kernel ends it by a 0
    rest_.remove_prefix(name.size() + 1);
    return name;
  }
  [[nodiscard]] std::string_view rest() const { return rest_; }

  fuse_in_header head{};

 private:
  std::vector<char> bytes_;
  std::string_view rest_;
};

}  // namespace

class FuseMount::Server {
 public:
  Server(int device, const fs::path& behind, const FuseOptions& options,
         const std::atomic<Mode>& mode)
      : device_(device), options_(options), mode_(mode) {
    nodes_.emplace(FUSE_ROOT_ID, behind.native());
  }

  /// Until the file system is unmounted, or the time is over.
  int serve() {
    const auto end = std::chrono::steady_clock::now() + options_.lifetime;
    std::vector<FuseRequest> held;
    while (std::chrono::steady_clock::now() < end) {
      const Mode mode = mode_;
      if (mode == Mode::kServing) {
        for (FuseRequest& request : std::exchange(held, {})) answer(request);
      }
      pollfd ready{.fd = device_, .events = POLLIN, .revents = 0};
      if (mode == Mode::kStopped) {
        ::usleep(2000);
      } else if (::poll(&ready, 1, 5) > 0 && mode_ != Mode::kStopped) {
        std::vector<char> bytes(kRequestSize);
        const ssize_t n = ::read(device_, bytes.data(), bytes.size());
        if (n < 0 && errno == ENODEV)
          return 0;
        if (n < static_cast<ssize_t>(sizeof(fuse_in_header)))
          continue;
        bytes.resize(static_cast<std::size_t>(n));
        held.emplace_back(std::move(bytes));
      }
    }
    return 0;
  }

 private:
  void reply(const FuseRequest& to, int err, std::string_view bytes = {}) const {
    fuse_out_header head{};
    head.len = static_cast<std::uint32_t>(sizeof head + bytes.size());
    head.error = -err;
    head.unique = to.head.unique;
    std::array<iovec, 2> parts{
        iovec{.iov_base = &head, .iov_len = sizeof head},
        iovec{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()}};
    std::ignore = ::writev(device_, parts.data(), bytes.empty() ? 1 : 2);
  }
  template <typename T>
  void reply_with(const FuseRequest& to, const T& value) const {
    reply(to, 0, {reinterpret_cast<const char*>(&value), sizeof value});
  }
  /// `result` of a system call.
  void reply_done(const FuseRequest& to, int result) const {
    reply(to, result < 0 ? errno : 0);
  }

  /// The name of what is looked up there, in the case that it has.
  [[nodiscard]] std::string found_as(const std::string& folder,
                                     const std::string& name) const {
    std::error_code none;
    if (options_.ignores_case && !fs::exists(folder + "/" + name, none)) {
      for (const auto& each : fs::directory_iterator(folder, none)) {
        if (::strcasecmp(each.path().filename().c_str(), name.c_str()) == 0)
          return each.path().filename();
      }
    }
    return name;
  }
  [[nodiscard]] std::string path(std::uint64_t node) const { return nodes_.at(node); }
  [[nodiscard]] std::string path(const FuseRequest& of) const {
    return path(of.head.nodeid);
  }

  [[nodiscard]] fuse_entry_out entry(const std::string& place,
                                     const struct stat& info) {
    auto& node = known_[{place, info.st_ino}];
    if (node == 0) {
      node = ++last_node_;
      nodes_.emplace(node, place);
    }
    fuse_entry_out out{};
    out.nodeid = node;
    const std::uint64_t lives = nanoseconds_of(options_.attributes_live);
    out.entry_valid = out.attr_valid = lives / kNanoseconds;
    out.entry_valid_nsec = out.attr_valid_nsec =
        static_cast<std::uint32_t>(lives % kNanoseconds);
    out.attr = attributes(info);
    return out;
  }
  void reply_entry(const FuseRequest& to, const std::string& place) {
    struct stat info {};
    if (::lstat(place.c_str(), &info) != 0)
      return reply(to, errno);
    reply_with(to, entry(place, info));
  }
  void reply_attributes(const FuseRequest& to, bool has_file,
                        std::uint64_t file) const {
    struct stat info {};
    const int result = has_file ? ::fstat(static_cast<int>(file), &info)
                                : ::lstat(path(to).c_str(), &info);
    if (result != 0)
      return reply(to, errno);
    fuse_attr_out out{};
    const std::uint64_t lives = nanoseconds_of(options_.attributes_live);
    out.attr_valid = lives / kNanoseconds;
    out.attr_valid_nsec = static_cast<std::uint32_t>(lives % kNanoseconds);
    out.attr = attributes(info);
    reply_with(to, out);
  }

  void answer(FuseRequest& request) {
    switch (request.head.opcode) {
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
      case FUSE_INTERRUPT:
        return;  // these have no reply
      case FUSE_INIT:
        return begin(request);
      case FUSE_LOOKUP: {
        const std::string folder = path(request);
        return reply_entry(request,
                           folder + "/" + found_as(folder, request.take_name()));
      }
      case FUSE_GETATTR: {
        const auto in = request.take<fuse_getattr_in>();
        return reply_attributes(request, (in.getattr_flags & FUSE_GETATTR_FH) != 0,
                                in.fh);
      }
      case FUSE_SETATTR:
        return set_attributes(request);
      case FUSE_OPENDIR:
        return reply_with(request, fuse_open_out{});
      case FUSE_READDIR:
        return list(request);
      case FUSE_STATFS:
        return describe(request);
      case FUSE_MKDIR: {
        const auto in = request.take<fuse_mkdir_in>();
        const std::string place = path(request) + "/" + request.take_name();
        if (::mkdir(place.c_str(), in.mode & ~in.umask) != 0)
          return reply(request, errno);
        return reply_entry(request, place);
      }
      case FUSE_UNLINK:
        return reply_done(
            request, ::unlink((path(request) + "/" + request.take_name()).c_str()));
      case FUSE_RMDIR:
        return reply_done(request,
                          ::rmdir((path(request) + "/" + request.take_name()).c_str()));
      case FUSE_RENAME:
        return rename(request, request.take<fuse_rename_in>().newdir, 0);
      case FUSE_RENAME2: {
        const auto in = request.take<fuse_rename2_in>();
        return rename(request, in.newdir, in.flags);
      }
      case FUSE_LINK: {
        const auto in = request.take<fuse_link_in>();
        const std::string place = path(request) + "/" + request.take_name();
        if (::link(path(in.oldnodeid).c_str(), place.c_str()) != 0)
          return reply(request, errno);
        return reply_entry(request, place);
      }
      default:
        return answer_of_file(request);
    }
  }

  void answer_of_file(FuseRequest& request) {
    switch (request.head.opcode) {
      case FUSE_OPEN: {
        const auto in = request.take<fuse_open_in>();
        const int file =
            ::open(path(request).c_str(), static_cast<int>(in.flags) & ~O_APPEND);
        return file < 0 ? reply(request, errno) : reply_with(request, opened(file));
      }
      case FUSE_CREATE: {
        const auto in = request.take<fuse_create_in>();
        const std::string place = path(request) + "/" + request.take_name();
        const int file =
            ::open(place.c_str(), (static_cast<int>(in.flags) & ~O_APPEND) | O_CREAT,
                   in.mode & ~in.umask);
        struct stat info {};
        if (file < 0 || ::fstat(file, &info) != 0)
          return reply(request, errno);
        const struct {
          fuse_entry_out entry;
          fuse_open_out file;
        } out{entry(place, info), opened(file)};
        return reply_with(request, out);
      }
      case FUSE_READ: {
        const auto in = request.take<fuse_read_in>();
        std::string bytes(in.size, '\0');
        const ssize_t n = ::pread(static_cast<int>(in.fh), bytes.data(), bytes.size(),
                                  static_cast<off_t>(in.offset));
        if (n < 0)
          return reply(request, errno);
        return reply(request, 0,
                     std::string_view(bytes).substr(0, static_cast<std::size_t>(n)));
      }
      case FUSE_WRITE: {
        const auto in = request.take<fuse_write_in>();
        const ssize_t n = ::pwrite(static_cast<int>(in.fh), request.rest().data(),
                                   in.size, static_cast<off_t>(in.offset));
        if (n < 0)
          return reply(request, errno);
        fuse_write_out out{};
        out.size = static_cast<std::uint32_t>(n);
        return reply_with(request, out);
      }
      case FUSE_RELEASE:
        ::close(static_cast<int>(request.take<fuse_release_in>().fh));
        return reply(request, 0);
      case FUSE_RELEASEDIR:
      case FUSE_FLUSH:
      case FUSE_FSYNC:
      case FUSE_FSYNCDIR:
        return reply(request, 0);
      default:
        return reply(request, ENOSYS);
    }
  }

  void begin(FuseRequest& request) const {
    const auto in = request.take<fuse_init_in>();
    fuse_init_out out{};
    out.major = FUSE_KERNEL_VERSION;
    out.minor = std::min<std::uint32_t>(in.minor, FUSE_KERNEL_MINOR_VERSION);
    out.max_readahead = in.max_readahead;
    out.flags = in.flags & (FUSE_BIG_WRITES | FUSE_AUTO_INVAL_DATA);
    out.max_write = kMaxWrite;
    out.time_gran = 1;
    reply_with(request, out);
  }

  [[nodiscard]] fuse_open_out opened(int file) const {
    fuse_open_out out{};
    out.fh = static_cast<std::uint64_t>(file);
    out.open_flags = options_.keep_content ? FOPEN_KEEP_CACHE : 0;
    return out;
  }

  void set_attributes(FuseRequest& request) const {
    const auto in = request.take<fuse_setattr_in>();
    const std::string place = path(request);
    int result = 0;
    if ((in.valid & FATTR_MODE) != 0)
      result |= ::chmod(place.c_str(), in.mode);
    if ((in.valid & FATTR_SIZE) != 0)
      result |= (in.valid & FATTR_FH) != 0
                    ? ::ftruncate(static_cast<int>(in.fh), static_cast<off_t>(in.size))
                    : ::truncate(place.c_str(), static_cast<off_t>(in.size));
    if ((in.valid & (FATTR_ATIME | FATTR_MTIME)) != 0) {
      const auto time = [&](std::uint32_t field, std::uint32_t now, std::uint64_t s,
                            std::uint32_t ns) {
        const long kept = (in.valid & now) != 0     ? UTIME_NOW
                          : (in.valid & field) != 0 ? static_cast<long>(ns)
                                                    : UTIME_OMIT;
        return timespec{.tv_sec = static_cast<time_t>(s), .tv_nsec = kept};
      };
      const std::array<timespec, 2> times{
          time(FATTR_ATIME, FATTR_ATIME_NOW, in.atime, in.atimensec),
          time(FATTR_MTIME, FATTR_MTIME_NOW, in.mtime, in.mtimensec)};
      result |= ::utimensat(AT_FDCWD, place.c_str(), times.data(), AT_SYMLINK_NOFOLLOW);
    }
    if (result != 0)
      return reply(request, errno);
    reply_attributes(request, (in.valid & FATTR_FH) != 0, in.fh);
  }

  void list(FuseRequest& request) const {
    const auto in = request.take<fuse_read_in>();
    DIR* const folder = ::opendir(path(request).c_str());
    if (folder == nullptr)
      return reply(request, errno);
    std::string out;
    std::uint64_t place = 0;
    while (const dirent* const found = ::readdir(folder)) {
      if (place++ < in.offset)
        continue;
      fuse_dirent row{};
      row.ino = found->d_ino;
      row.off = place;
      row.namelen = static_cast<std::uint32_t>(std::strlen(found->d_name));
      row.type = found->d_type;
      std::string bytes(reinterpret_cast<const char*>(&row), FUSE_NAME_OFFSET);
      bytes += found->d_name;
      bytes.resize(FUSE_DIRENT_ALIGN(bytes.size()));
      if (out.size() + bytes.size() > in.size)
        break;
      out += bytes;
    }
    ::closedir(folder);
    reply(request, 0, out);
  }

  void describe(const FuseRequest& request) const {
    struct statvfs info {};
    if (::statvfs(path(request).c_str(), &info) != 0)
      return reply(request, errno);
    fuse_statfs_out out{};
    out.st.blocks = info.f_blocks;
    out.st.bfree = info.f_bfree;
    out.st.bavail = info.f_bavail;
    out.st.files = info.f_files;
    out.st.ffree = info.f_ffree;
    out.st.bsize = static_cast<std::uint32_t>(info.f_bsize);
    out.st.frsize = static_cast<std::uint32_t>(info.f_frsize);
    out.st.namelen = static_cast<std::uint32_t>(info.f_namemax);
    reply_with(request, out);
  }

  void rename(FuseRequest& request, std::uint64_t to_folder, unsigned flags) {
    const std::string from = path(request) + "/" + request.take_name();
    const std::string to = path(to_folder) + "/" + request.take_name();
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) != 0)
      return reply(request, errno);
    for (auto& [node, place] : nodes_) {  // the kernel keeps the number of what moved
      if (place == from || place.starts_with(from + "/"))
        place.replace(0, from.size(), to);
    }
    known_.clear();  // by old paths; whatever is looked up again gets a new number
    reply(request, 0);
  }

  const int device_;
  const FuseOptions options_;
  const std::atomic<Mode>& mode_;
  std::map<std::uint64_t, std::string> nodes_;  // to paths
  std::map<std::pair<std::string, ino_t>, std::uint64_t> known_;
  std::uint64_t last_node_ = FUSE_ROOT_ID;
};

FuseMount::FuseMount(const fs::path& place, const fs::path& behind, FuseOptions options)
    : place_(place) {
  fs::create_directories(place);
  fs::create_directories(behind);
  const int device = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  const std::string words = "fd=" + std::to_string(device) +
                            ",rootmode=40000,user_id=" + std::to_string(::getuid()) +
                            ",group_id=" + std::to_string(::getgid()) +
                            ",default_permissions";
  if (device < 0 || ::mount("kiln-test", place.c_str(), "fuse", MS_NOSUID | MS_NODEV,
                            words.c_str()) != 0) {
    const int err = errno;
    if (err != EPERM && err != EACCES && err != ENOENT && err != ENODEV)
      ADD_FAILURE() << "no FUSE mount at " << place << ": " << std::strerror(err);
  } else {
    const pid_t parent = ::getpid();
    server_.emplace([&] {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent)
        return 1;
      ::signal(SIGPIPE, SIG_IGN);
      return Server(device, behind, options, *mode_).serve();
    });
  }
  if (device >= 0)
    ::close(device);  // the server's is the last one: its end aborts the connection
}

FuseMount::~FuseMount() {
  const bool was_mounted = is_mounted();
  end_server();
  if (was_mounted)
    ::umount2(place_.c_str(), MNT_DETACH);
}

}  // namespace kiln::test
