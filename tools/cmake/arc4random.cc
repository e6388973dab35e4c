// arc4random for a static libstdc++, whose std::random_device calls it. glibc has it
// only from 2.36 on; a file of Kiln with this one, which no other file sees, runs
// with 2.34.

#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

extern "C" __attribute__((visibility("hidden"))) std::uint32_t arc4random() noexcept {
  std::uint32_t number = 0;
  // So few bytes are never given in part.
  while (::getrandom(&number, sizeof number, 0) != sizeof number) {
    if (errno != EINTR)
      std::abort();  // as glibc's, it cannot report that there are no random numbers
  }
  return number;
}
