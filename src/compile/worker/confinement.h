// What a compile worker cannot do, whatever a source or a library makes its compiler
// do.
//
// A system call filter (seccomp) refuses, on every kernel that has it: starting a
// program; new namespaces and mounts; ptrace, process_vm_* and pidfds of any process;
// kill and its relatives, and prlimit, on another process; owners and signals of
// descriptors (F_SETOWN, F_SETSIG); sockets other than AF_UNIX; io_uring, userfaultfd,
// bpf, perf events, keys and kernel modules.
// Landlock, where the kernel has it (5.13 or later, if it is switched on), keeps /proc
// of other processes closed, also to root: their memory, descriptors and environment.
// It refuses to write, create, rename and remove files, except below TMPDIR (/tmp if it
// is not set), /dev/shm and the pool's scratch folder, and in the devices of the GPU
// driver.
//
// Not refused: reading every file that the user can read, since headers may be
// anywhere; asking a daemon through an AF_UNIX socket, since a driver has one; changing
// the mode, owner and times of the user's files. Root keeps its other rights.

#pragma once

#include "kiln/result.h"

namespace kiln::compile {

/// Confines this process, and every thread that it starts later, permanently. Call it
/// before there is a second thread. Forbidden calls fail with EACCES. Where the kernel
/// lacks seccomp or Landlock, or on an unknown machine architecture, that part is
/// missing and the rest holds; no new privileges are always forbidden. Errors: kIo, if
/// even that fails.
[[nodiscard]] Result<void> confine_process();

}  // namespace kiln::compile
