// The one conversion point from errno to Error.

#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "kiln/result.h"

namespace kiln {

/// kIo with the message "<call> <path>: <text of err>". `err` is an errno value that
/// the caller saved right after the failing call.
[[nodiscard]] tl::unexpected<Error> posix_error(std::string_view call,
                                                const std::filesystem::path& path,
                                                int err);

/// That message alone.
[[nodiscard]] std::string posix_message(std::string_view call,
                                        const std::filesystem::path& path, int err);

}  // namespace kiln
