// Any bytes as the file of counts: it can be read, and adding to it loses none of what
// was read.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "cache/counter_file.h"
#include "tests/fuzz/no_file_system.h"
#include "tests/fuzz/require.h"

namespace {

using kiln::Bytes;
using kiln::ByteView;
using kiln::fuzz::require;
using Counts = kiln::cache::CounterFile::Counts;

constexpr int kDescriptor = 1'000'000;  // of no file of this process

/// One file, in memory, whatever its path.
class OneFile final : public kiln::fuzz::NoFileSystem {
 public:
  Bytes bytes;

  int open(const char*, int, mode_t) override { return kDescriptor; }
  ssize_t pread(int, std::byte* to, std::size_t size, std::uint64_t offset) override {
    if (offset >= bytes.size())
      return 0;
    const std::size_t n = std::min<std::size_t>(size, bytes.size() - offset);
    std::memcpy(to, bytes.data() + offset, n);
    return static_cast<ssize_t>(n);
  }
  ssize_t pwrite(int, ByteView from, std::uint64_t offset) override {
    bytes.resize(std::max<std::size_t>(bytes.size(), offset + from.size()));
    std::memcpy(bytes.data() + offset, from.data(), from.size());
    return static_cast<ssize_t>(from.size());
  }
  int fstat(int, struct stat& info) override {
    info = {};
    info.st_mode = S_IFREG | S_IRUSR | S_IWUSR;
    info.st_uid = ::geteuid();
    return 0;
  }
  int set_lock(int, kiln::cache::RangeLock, std::uint64_t, std::uint64_t) override {
    return 0;
  }
};

/// Each count as it was, those that were added larger; or these alone, where there was
/// no room left.
void check(const Counts& before, const Counts& added, const Counts& after) {
  if (after == added)
    return;
  Counts expected = before;
  for (const auto& [name, n] : added) {
    std::uint64_t& count = expected[name];
    count += std::min(n, std::numeric_limits<std::uint64_t>::max() - count);
  }
  require(after == expected);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto trust = kiln::cache::TrustPolicy::of_this_process({});
  constexpr std::chrono::milliseconds kNoWait{0};
  const Counts added{{"hits", 3}, {"corrupt.size", 1}};
  OneFile file;
  const auto bytes = std::as_bytes(std::span(data, size));
  file.bytes.assign(bytes.begin(), bytes.end());
  kiln::cache::CounterFile counters("/nowhere/counters", file, trust);
  const auto before = counters.read(kNoWait);
  require(before && counters.add(added, kNoWait));
  require(file.bytes.size() >= size);
  const auto after = counters.read(kNoWait);
  require(after.has_value());
  check(*before, added, *after);
  return 0;
}
