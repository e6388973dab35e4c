// Options behind a text: "/srv/a.kpack;signed=1;min_serial=7", "https://c;mode=rw".

#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "kiln/result.h"

namespace kiln {

/// Calls `set` for each of `options`, "name=value;name=value"; empty ones are left out.
/// Errors, about `text` and the option: those of `set`; kInvalidArgument, if one is
/// there twice.
[[nodiscard]] Result<void> read_options(
    std::string_view text, std::string_view options,
    const std::function<Result<void>(const std::string& name,
                                     const std::string& value)>& set);

}  // namespace kiln
