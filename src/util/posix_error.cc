#include "util/posix_error.h"

#include <fmt/format.h>

#include <system_error>

namespace kiln {

tl::unexpected<Error> posix_error(std::string_view call,
                                  const std::filesystem::path& path, int err) {
  return fail(ErrorCode::kIo, fmt::format("{} {}: {}", call, path.native(),
                                          std::generic_category().message(err)));
}

}  // namespace kiln
