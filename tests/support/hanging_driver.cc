// A driver that hangs, in the place of the machine's own, as libcuda.so.1: `opened` in
// TMPDIR tells that somebody loaded it.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

[[gnu::constructor]] void tell() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes a worker's environment
  if (const char* const folder = std::getenv("TMPDIR")) {
    const std::string path = std::string(folder) + "/opened";
    if (std::FILE* const file = std::fopen(path.c_str(), "w"))
      static_cast<void>(std::fclose(file));
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the driver's own
extern "C" __attribute__((visibility("default"))) int cuInit(unsigned /*flags*/) {
  while (true) ::pause();
}
