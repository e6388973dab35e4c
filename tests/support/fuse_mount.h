// A FUSE file system that shows another folder: for mounts that stop to answer, and for
// attributes that the kernel remembers. It speaks to /dev/fuse itself and needs no
// package.
//
//   const auto status = in_mount_namespace([&] {
//     FuseMount mount(temp.path() / "mount", temp.path() / "behind",
//                     {.attributes_live = std::chrono::seconds(60)});
//     if (!mount.is_mounted())
//       return kImpossible;
//     // Change a file below "behind", and look at it below "mount"; or mount.stop().
//     return 0;
//   });
//   if (!status)
//     GTEST_SKIP() << "no FUSE mounts on this machine";
//
// Link kiln_test_fuse. Nothing hangs for longer than the server lives, `lifetime`:
// where it ends, however, the kernel aborts the connection, and each call on the mount
// fails. So make it in a mount namespace of its own, which takes the mount along.

#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>

#include "tests/support/child_process.h"

namespace kiln::test {

struct FuseOptions {
  /// How long the kernel answers stat() and look-ups of names from memory.
  std::chrono::milliseconds attributes_live{0};
  /// The kernel keeps the content of a file that is opened again. What it keeps it
  /// drops once it sees another size or modification time.
  bool keep_content = false;
  /// A name is found in another case, too, as on vfat.
  bool ignores_case = false;
  std::chrono::seconds lifetime{120};
};

/// Thread safety: stop(), hold() and go_on() may run in any thread or forked child.
class FuseMount {
 public:
  /// Mounts at `place`, which is made if it is missing. It can be written, too: files,
  /// folders, renames and hard links, but no symbolic links.
  FuseMount(const std::filesystem::path& place, const std::filesystem::path& behind,
            FuseOptions options = {});
  FuseMount(const FuseMount&) = delete;
  FuseMount& operator=(const FuseMount&) = delete;
  /// Ends the server, so that whatever hangs fails, and unmounts.
  ~FuseMount();

  /// False where this machine allows no such mount; any other reason fails the test.
  [[nodiscard]] bool is_mounted() const { return server_.has_value(); }

  /// From now on it takes no request: calls hang until a signal kills their process, as
  /// on a hard NFS mount whose server is gone.
  void stop() { *mode_ = Mode::kStopped; }
  /// It takes requests and answers none: not even SIGKILL ends who waits for one.
  void hold() { *mode_ = Mode::kHolding; }
  /// It answers again, first what it was asked meanwhile.
  void go_on() { *mode_ = Mode::kServing; }

  /// Ends the server: each call fails at once with ENOTCONN.
  void end_server() { server_.reset(); }

 private:
  enum class Mode : int { kServing, kStopped, kHolding };
  class Server;

  const std::filesystem::path place_;
  SharedWithChildren<std::atomic<Mode>> mode_;
  std::optional<ChildProcess> server_;
};

}  // namespace kiln::test
