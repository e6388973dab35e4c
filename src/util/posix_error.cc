#include "util/posix_error.h"

#include <system_error>

#include "util/try.h"

namespace kiln {

tl::unexpected<Error> posix_error(std::string_view call,
                                  const std::filesystem::path& path, int err) {
  return fail(ErrorCode::kIo, "{} {}: {}", call, path.native(),
              std::generic_category().message(err));
}

}  // namespace kiln
