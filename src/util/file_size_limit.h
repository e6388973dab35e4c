// A file that would grow over the process's limit (RLIMIT_FSIZE): the kernel sends
// SIGXFSZ, which ends a program that never heard of it. Here it is an error of the
// call.

#pragma once

#include <csignal>

namespace kiln {

/// Keeps SIGXFSZ of this thread's own calls from being delivered while it lives.
/// Thread safety: one thread, which must create and destroy it.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal();
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;
  /// Takes the signal that a call has caused, if any. Keeps errno.
  ~NoFileSizeSignal();

 private:
  sigset_t before_{};
  bool was_pending_ = false;
};

/// The result of `call`, which writes to a file or sets its size. Over the limit it
/// fails with EFBIG, and that is all.
template <typename Call>
auto without_file_size_signal(Call call) {
  const NoFileSizeSignal block;
  return call();
}

}  // namespace kiln
