// The result of opening one object file. Private to ObjectStore's two source files:
// object_store.cc reads, publish.cc writes.

#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

#include "cache/object_store.h"

namespace kiln::cache {

enum class OpenOutcome : std::uint8_t {
  kObject,
  kMissing,
  kCorrupt,     // `check` and `detail` say why
  kUntrusted,   // `detail` says why
  kUnreadable,  // `detail` says why
  kAgain,       // the file changed under us: open it again
};

struct ObjectStore::Opened {
  OpenOutcome outcome;
  std::optional<StoredObject> object{};  // set if kObject
  Check check = Check::kSize;
  std::string detail{};
  struct stat info {};  // of the file that was opened, for all but kMissing

  /// Of an object that may be sound and cannot be read.
  [[nodiscard]] std::optional<Error> refusal() const {
    if (outcome == OpenOutcome::kUntrusted)
      return Error{ErrorCode::kUntrusted, detail};
    return outcome == OpenOutcome::kUnreadable
               ? std::optional<Error>({ErrorCode::kIo, detail})
               : std::nullopt;
  }
};

}  // namespace kiln::cache
