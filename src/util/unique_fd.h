// One owner for one file descriptor.

#pragma once

#include <unistd.h>

#include "util/unique_handle.h"

namespace kiln {

struct FdTraits {
  using Raw = int;
  static constexpr int null() { return -1; }
  // The value of close() matters only where bytes were written; such code calls
  // ::close(fd.release()) itself and looks.
  static void close(int fd) noexcept { ::close(fd); }
};

using UniqueFd = UniqueHandle<FdTraits>;

}  // namespace kiln
