// One owner for one file descriptor.

#pragma once

#include <unistd.h>

#include "util/unique_handle.h"

namespace kiln {

struct FdTraits {
  using Raw = int;
  static constexpr int null() { return -1; }
  // The result of close() matters only after a write; such code calls
  // ::close(fd.release()) itself and checks it.
  static void close(int fd) noexcept { ::close(fd); }
};

using UniqueFd = UniqueHandle<FdTraits>;

}  // namespace kiln
