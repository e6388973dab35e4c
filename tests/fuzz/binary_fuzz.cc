// Any bytes as a file that may hold device code: a library, an archive, a fat binary.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <span>

#include "binaries/device_code.h"
#include "binaries/verdict.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kiln::UniqueFd memory(::memfd_create("input", MFD_CLOEXEC));
  kiln::fuzz::require(::write(memory.get(), data, size) == static_cast<ssize_t>(size));
  const auto file = kiln::FileRange::of(std::move(memory), "input");
  kiln::fuzz::require(file.has_value());
  const auto code = kiln::binaries::read_device_code(*file);
  if (!code || code->images.empty())
    return 0;
  const auto verdict = kiln::binaries::judge(*code, {9, 0}, std::nullopt);
  kiln::fuzz::require(!verdict.reason.empty());
  return 0;
}
