#include "compile/worker/confinement.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "compile/protocol/protocol.h"
#include "util/folder_names.h"
#include "util/posix_error.h"
#include "util/unique_fd.h"

// The filter is a program of the classic Berkeley packet filter over seccomp_data.
// Source: Documentation/userspace-api/seccomp_filter.rst of the Linux kernel.

namespace kiln::compile {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kArchitecture = 0;  // unknown architecture: no filter
#endif
// Numbers from here on are the same calls under the x32 ABI.
constexpr std::uint32_t kX32SyscallBit = 0x40000000;

constexpr std::array kForbidden{
    // programs, kernel modules, keys
    SYS_execve,
    SYS_execveat,
    SYS_init_module,
    SYS_finit_module,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    // other processes
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_kcmp,
    SYS_pidfd_open,
    SYS_pidfd_getfd,
    SYS_pidfd_send_signal,
    SYS_tkill,
    // namespaces and mounts
    SYS_unshare,
    SYS_setns,
    SYS_chroot,
    SYS_pivot_root,
    SYS_mount,
    SYS_umount2,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_move_mount,
    SYS_open_tree,
    SYS_mount_setattr,
    SYS_open_by_handle_at,
    // the kernel by other ways: these calls are not filtered one by one
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_userfaultfd,
    SYS_bpf,
    SYS_perf_event_open,
};

/// Their first argument is a process; allowed for this one, and for 0, which means it.
constexpr std::array kOwnProcessOnly{
    SYS_kill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_prlimit64,
};

/// The flags of clone() that make a namespace.
constexpr std::uint32_t kNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS |
                                      CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
                                      CLONE_NEWNET;

class Filter {
 public:
  Filter() {
    load(offsetof(seccomp_data, arch));
    skip_if_equal(kArchitecture, 1);
    refuse(EACCES);
    load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
    add(BPF_JMP | BPF_JGE | BPF_K, kX32SyscallBit, 0, 1);
    refuse(EACCES);
#endif
    for (const long call : kForbidden) {
      only_for(call, 1);
      refuse(EACCES);
    }
    for (const long call : kOwnProcessOnly) {
      only_for(call, 5);
      load_argument(0);
      skip_if_equal(0, 2);
      skip_if_equal(static_cast<std::uint32_t>(::getpid()), 1);
      refuse(EACCES);
      allow();
    }
    // The owner of a descriptor gets its signals: another way to signal a process.
    only_for(SYS_fcntl, 6);
    load_argument(1);
    skip_if_equal(F_SETOWN, 3);
    skip_if_equal(F_SETOWN_EX, 2);
    skip_if_equal(F_SETSIG, 1);
    allow();
    refuse(EACCES);
    only_for(SYS_ioctl, 5);
    load_argument(1);
    skip_if_equal(FIOSETOWN, 2);
    skip_if_equal(SIOCSPGRP, 1);
    allow();
    refuse(EACCES);
    only_for(SYS_clone, 4);
    load_argument(0);
    add(BPF_JMP | BPF_JSET | BPF_K, kNamespaces, 0, 1);
    refuse(EACCES);
    allow();
    // Its flags are in memory, where no filter sees them. The C library knows kernels
    // without it, and then uses clone().
    only_for(SYS_clone3, 1);
    refuse(ENOSYS);
    // AF_UNIX sockets stay allowed: a driver talks to its daemon through one.
    for (const long call : {SYS_socket, SYS_socketpair}) {
      only_for(call, 4);
      load_argument(0);
      skip_if_equal(AF_UNIX, 1);
      refuse(EACCES);
      allow();
    }
    allow();
  }

  [[nodiscard]] sock_fprog program() {
    return {.len = static_cast<unsigned short>(code_.size()), .filter = code_.data()};
  }

 private:
  void add(unsigned code, std::uint32_t value, unsigned if_true, unsigned if_false) {
    code_.push_back({.code = static_cast<std::uint16_t>(code),
                     .jt = static_cast<std::uint8_t>(if_true),
                     .jf = static_cast<std::uint8_t>(if_false),
                     .k = value});
  }
  void load(std::size_t offset) {
    add(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset), 0, 0);
  }
  /// Skips the next `skipped` instructions if the loaded word is `value`.
  void skip_if_equal(std::uint32_t value, unsigned skipped) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, skipped, 0);
  }
  /// The low half on little-endian machines. The calls above take an int or 32 flags.
  void load_argument(std::size_t number) {
    load(offsetof(seccomp_data, args) + number * sizeof(seccomp_data::args[0]));
  }
  /// The next `instructions` run only for `call`. They end with allow() or refuse() if
  /// they load something else than the number of the call.
  void only_for(long call, unsigned instructions) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, instructions);
  }
  void refuse(std::uint32_t err) {
    add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | err, 0, 0);
  }
  void allow() {
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
  }

  std::vector<sock_filter> code_;
};

// Landlock. Source: linux/landlock.h and Documentation/userspace-api/landlock.rst of
// the Linux kernel. Its numbers are repeated here: headers may be older than the
// kernel.
constexpr std::uint64_t kWriteFile = 1U << 1U;
constexpr std::uint64_t kRemoveDir = 1U << 4U;
constexpr std::uint64_t kRemoveFile = 1U << 5U;
constexpr std::uint64_t kMakeChar = 1U << 6U;
constexpr std::uint64_t kMakeDir = 1U << 7U;
constexpr std::uint64_t kMakeReg = 1U << 8U;
constexpr std::uint64_t kMakeSock = 1U << 9U;
constexpr std::uint64_t kMakeFifo = 1U << 10U;
constexpr std::uint64_t kMakeBlock = 1U << 11U;
constexpr std::uint64_t kMakeSym = 1U << 12U;
constexpr std::uint64_t kRefer = 1U << 13U;     // from version 2 on
constexpr std::uint64_t kTruncate = 1U << 14U;  // from version 3 on

class WriteRules {
 public:
  /// Without Landlock, all that follows does nothing.
  WriteRules() {
    constexpr unsigned kAskVersion = 1;
    const long version =
        ::syscall(SYS_landlock_create_ruleset, nullptr, 0, kAskVersion);
    if (version < 1)
      return;
    handled_ = kWriteFile | kRemoveDir | kRemoveFile | kMakeChar | kMakeDir | kMakeReg |
               kMakeSock | kMakeFifo | kMakeBlock | kMakeSym |
               (version >= 2 ? kRefer : 0) | (version >= 3 ? kTruncate : 0);
    // The first member of landlock_ruleset_attr, the only one before version 4.
    rules_ = UniqueFd(static_cast<int>(
        ::syscall(SYS_landlock_create_ruleset, &handled_, sizeof(handled_), 0)));
  }

  /// Everything but making devices, below `folder`.
  void allow_folder(const char* folder) {
    allow(folder, handled_ & ~(kMakeChar | kMakeBlock));
  }
  /// To write to `file`, or to the files below it.
  void allow_writing(const char* file) {
    allow(file, handled_ & (kWriteFile | kTruncate));
  }

  void enforce() {
    if (rules_)
      ::syscall(SYS_landlock_restrict_self, rules_.get(), 0);
  }

 private:
  void allow(const char* path, std::uint64_t rights) {
    const UniqueFd place(rules_ ? ::open(path, O_PATH | O_CLOEXEC) : -1);
    if (!place)
      return;
    landlock_path_beneath_attr rule{};
    rule.allowed_access = rights;
    rule.parent_fd = place.get();
    ::syscall(SYS_landlock_add_rule, rules_.get(), LANDLOCK_RULE_PATH_BENEATH, &rule,
              0);
  }

  std::uint64_t handled_ = 0;
  UniqueFd rules_;
};

/// Devices of NVIDIA's drivers for desktops and servers, Tegra, and Windows' Linux.
bool is_of_the_driver(std::string_view device) {
  constexpr std::array<std::string_view, 6> kBegins{"nvidia", "nvhost", "nvgpu",
                                                    "nvmap",  "nvsci",  "dxg"};
  return std::ranges::any_of(
      kBegins, [&](std::string_view begin) { return device.starts_with(begin); });
}

void confine_writing() {
  WriteRules rules;
  const char* const temporary = ::secure_getenv("TMPDIR");
  rules.allow_folder(temporary != nullptr && *temporary == '/' ? temporary : "/tmp");
  rules.allow_folder("/dev/shm");
  // Of the pool, for precompiled headers.
  if (const char* const scratch = ::secure_getenv(kScratchVariable))
    rules.allow_folder(scratch);
  rules.allow_writing("/dev/null");
  for (const std::string& device : folder_names("/dev", is_of_the_driver))
    rules.allow_writing(("/dev/" + device).c_str());
  rules.enforce();
}

/// Root's rights beyond those of a user: some would open what Landlock closes.
void drop_capabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  if (::syscall(SYS_capget, &header, sets.data()) != 0)
    return;
  // The host found headers with these: the compiler must be able to read them.
  constexpr std::uint32_t kKept = 1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH;
  sets[0] = {.effective = sets[0].effective & kKept,
             .permitted = sets[0].permitted & kKept,
             .inheritable = 0};
  sets[1] = {};
  ::syscall(SYS_capset, &header, sets.data());
}

}  // namespace

Result<void> confine_process() {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return posix_error("prctl", "PR_SET_NO_NEW_PRIVS", errno);
  drop_capabilities();
  confine_writing();
  if (kArchitecture == 0)
    return {};
  Filter filter;
  const sock_fprog program = filter.program();
  // Kernels and containers without seccomp refuse this; the process then has no filter.
  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
  return {};
}

}  // namespace kiln::compile
