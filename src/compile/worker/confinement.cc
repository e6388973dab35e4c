#include "compile/worker/confinement.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "util/posix_error.h"

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
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_mount,
    SYS_umount2,
    SYS_unshare,
    SYS_setns,
    SYS_pivot_root,
    SYS_chroot,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_keyctl,
    SYS_add_key,
    SYS_init_module,
    SYS_finit_module,
    SYS_kexec_load,
};

class Filter {
 public:
  Filter() {
    load(offsetof(seccomp_data, arch));
    skip_if_equal(kArchitecture, 1);
    deny();
    load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
    add(BPF_JMP | BPF_JGE | BPF_K, kX32SyscallBit, 0, 1);
    deny();
#endif
    for (const long call : kForbidden) {
      add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1);
      deny();
    }
    // AF_UNIX sockets stay allowed: a driver talks to its daemon through one.
    add(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3);
    load(offsetof(seccomp_data, args));  // the low half on little-endian machines
    skip_if_equal(AF_UNIX, 1);
    deny();
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
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
  void deny() {
    add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES, 0, 0);
  }

  std::vector<sock_filter> code_;
};

}  // namespace

Result<void> confine_process() {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return posix_error("prctl", "PR_SET_NO_NEW_PRIVS", errno);
  if (kArchitecture == 0)
    return {};
  Filter filter;
  const sock_fprog program = filter.program();
  // Kernels and containers without seccomp refuse this; the process then has no filter.
  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
  return {};
}

}  // namespace kiln::compile
