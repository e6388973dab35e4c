// One thing that a program did to the disk, as recording_file_system.h writes it down
// and crash_states.h takes it apart.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fault/power_loss/disk.h"
#include "util/bytes.h"

namespace kiln::test {

struct Operation {
  enum class Kind : std::uint8_t {
    // Of names, durable once their folder is synced:
    kCreate,  // `name` is a new file
    kLink,    // `to` is one more name of it
    kRename,  // from `name` to `to`
    kUnlink,
    kMakeFolder,
    // Of a file, whatever its names:
    kWrite,  // `bytes` at `offset`; durable once the file is synced
    kMode,
    kTime,
    // What makes things durable:
    kSyncFile,
    kSyncFolder,
    /// Nothing on the disk: the caller was told that the object of number `offset` is
    /// stored.
    kAcknowledge,
  };

  Kind kind;
  FileNumber file = 0;
  std::string name{};
  std::string to{};
  std::uint64_t offset = 0;
  Bytes bytes{};
  mode_t mode = 0600;
  std::int64_t mtime_ns = 0;
};

using Log = std::vector<Operation>;

}  // namespace kiln::test
