// The end of a program whose threads are at work.

#pragma once

#include <cstdlib>

namespace kiln::test {

inline bool ends_amid_threads = false;

/// std::exit(), with destructors of static objects. What a thread that is not waited
/// for holds then is no leak, and a sanitizer does not look for any.
[[noreturn]] inline void exit_amid_threads(int code) {
  ends_amid_threads = true;
  std::exit(code);  // NOLINT(concurrency-mt-unsafe): that is what is tried
}

}  // namespace kiln::test

#ifdef __SANITIZE_ADDRESS__
/// LeakSanitizer asks it before it looks.
extern "C" __attribute__((used, visibility("default"))) inline int
__lsan_is_turned_off() {
  return kiln::test::ends_amid_threads ? 1 : 0;
}
#endif
