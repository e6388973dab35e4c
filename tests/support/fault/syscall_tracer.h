// Runs code in a child and decides over each of its system calls: kills it there, fails
// the call, lies about its result. Needs no privileges and no other program: ptrace of
// one's own child.

#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace kiln::test {

/// A system call that is about to be made between begin_faults() and end_faults().
struct SystemCall {
  pid_t thread = 0;
  long number = 0;  // SYS_write, ...
  std::array<std::uint64_t, 6> arguments{};
  int position = 0;  // among all of them, from 0
};

/// Whether it can change a file, a folder or a lock. What is on the disk is the same at
/// a kill before any other call as at the next of these.
[[nodiscard]] bool changes_files(const SystemCall& call);

/// The file that it is about, by its path argument or its descriptor; "" where there is
/// none or it cannot be told. To be called while it is decided over.
[[nodiscard]] std::string path_of(const SystemCall& call);

/// What becomes of a system call.
struct Fate {
  enum class Kind : std::uint8_t {
    kMade,
    kKilled,     // the process dies before it
    kFailed,     // not made; the caller gets `error`
    kLostReply,  // made; the caller gets `error` all the same
    kCutShort,   // a write of `bytes` only, which says that it wrote all
  };
  Kind kind = Kind::kMade;
  int error = 0;  // a positive errno
  std::uint64_t bytes = 0;

  static Fate killed() { return {.kind = Kind::kKilled}; }
  static Fate failed(int error) { return {.kind = Kind::kFailed, .error = error}; }
  static Fate lost_reply(int error) {
    return {.kind = Kind::kLostReply, .error = error};
  }
  static Fate cut_short(std::uint64_t bytes) {
    return {.kind = Kind::kCutShort, .bytes = bytes};
  }
};

struct Traced {
  int status = 0;                 // the exit code, or minus the signal that ended it
  std::vector<SystemCall> calls;  // those that were decided over, in order
  bool timed_out = false;         // it was killed at the deadline
};

/// False where a process may not trace its own child, or on a machine whose registers
/// are not known here: then the tests that need it skip themselves.
[[nodiscard]] bool can_trace();

/// Runs `body` in a forked child, all its threads and children traced; its return value
/// is the exit code. `decide` is called in this process, for one call at a time. The
/// calling process has no other children meanwhile.
[[nodiscard]] Traced trace(const std::function<int()>& body,
                           const std::function<Fate(const SystemCall&)>& decide,
                           std::chrono::seconds deadline = std::chrono::seconds(30));

/// Called in the body: what comes before and after goes on untouched.
void begin_faults();
void end_faults();

}  // namespace kiln::test
