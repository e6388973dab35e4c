#include "remote/client/node_failures.h"

#include <sys/types.h>
#include <unistd.h>

#include <tuple>

#include "codec/digest.h"
#include "util/bytes.h"
#include "util/little_endian.h"
#include "util/write_file.h"

namespace kiln::remote {
namespace {

constexpr std::size_t kWordBytes = 8;
constexpr std::size_t kFileBytes = 2 * kWordBytes;
constexpr mode_t kMode = 0600;

std::string name_of(const std::string& server) {
  constexpr std::size_t kDigits = 16;
  return Digest::of(as_bytes(server)).hex().substr(0, kDigits);
}

/// Of the machine: all its processes have the same.
std::uint64_t ticks(TimePoint time) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch())
          .count());
}

}  // namespace

NodeFailures::Known NodeFailures::find(const std::string& server, TimePoint now) const {
  const auto bytes = folder_.read(name_of(server), kFileBytes);
  if (!bytes || bytes->size() != kFileBytes)
    return {};
  const auto failures = load_le<std::uint64_t>(*bytes, 0);
  const auto last = load_le<std::uint64_t>(*bytes, kWordBytes);
  // One from before the machine started may be later than now.
  const bool is_recent =
      ticks(now) >= last && ticks(now) - last < ticks(TimePoint(kRest));
  return {failures, failures >= kFailuresToRest && is_recent};
}

void NodeFailures::add(const std::string& server, TimePoint now) const {
  if (folder_.empty() || !folder_.check())
    return;
  Bytes bytes;
  append_le(bytes, find(server, now).failures + 1);
  append_le(bytes, ticks(now));
  std::ignore = replace_file(folder_.path() / name_of(server), bytes, kMode);
}

void NodeFailures::clear(const std::string& server) const {
  if (!folder_.empty() && folder_.check())
    std::ignore = ::unlink((folder_.path() / name_of(server)).c_str());
}

}  // namespace kiln::remote
