#include "util/posix_error.h"

#include <fmt/format.h>

#include <system_error>

namespace kiln {

tl::unexpected<Error> posix_error(std::string_view call,
                                  const std::filesystem::path& path, int err) {
  return fail(ErrorCode::kIo, posix_message(call, path, err));
}

std::string posix_message(std::string_view call, const std::filesystem::path& path,
                          int err) {
  return fmt::format("{} {}: {}", call, path.native(),
                     std::generic_category().message(err));
}

}  // namespace kiln
