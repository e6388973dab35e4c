// Lock calls that fail or never return, for this process and all that it starts.

#pragma once

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace kiln::test {

/// `action` is what seccomp does with each record lock call, OFD or POSIX. Cannot be
/// taken back, so it is for a forked child. A descriptor or 0; negative where this
/// machine has no such filters.
inline long filter_locks(std::uint32_t action, unsigned flags) {
#if defined(__x86_64__)
  constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
  constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
  constexpr std::uint32_t kArchitecture = 0;
#endif
  constexpr std::uint16_t kLoad = BPF_LD | BPF_W | BPF_ABS;
  constexpr std::uint16_t kIfEqual = BPF_JMP | BPF_JEQ | BPF_K;
  constexpr std::uint16_t kReturn = BPF_RET | BPF_K;
  std::array program{
      sock_filter{kLoad, 0, 0, offsetof(seccomp_data, arch)},
      sock_filter{kIfEqual, 0, 8, kArchitecture},
      sock_filter{kLoad, 0, 0, offsetof(seccomp_data, nr)},
      sock_filter{kIfEqual, 0, 6, SYS_fcntl},
      sock_filter{kLoad, 0, 0, offsetof(seccomp_data, args) + sizeof(std::uint64_t)},
      sock_filter{kIfEqual, 3, 0, F_OFD_SETLK},
      sock_filter{kIfEqual, 2, 0, F_OFD_SETLKW},
      sock_filter{kIfEqual, 1, 0, F_SETLK},
      sock_filter{kIfEqual, 0, 1, F_SETLKW},
      sock_filter{kReturn, 0, 0, action},
      sock_filter{kReturn, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  if (kArchitecture == 0 || ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return -1;
  return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
}

/// From now on each fails with `error`, a positive errno. False: not on this machine.
inline bool refuse_locks(int error) {
  return filter_locks(SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error), 0) == 0;
}

/// From now on none returns while this process lives: each asks a supervisor who never
/// answers. A signal that kills ends it. False: not on this machine.
inline bool hang_in_locks() {
  return filter_locks(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER) >= 0;
}

}  // namespace kiln::test
