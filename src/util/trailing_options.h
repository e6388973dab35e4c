// Options behind a text: "/srv/a.kpack;signed=1;min_serial=7", "https://c;mode=rw".

#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "kiln/result.h"

namespace kiln {

/// The text before the first ';', which is taken off `rest` with it.
[[nodiscard]] std::string_view before_options(std::string_view& rest);

/// Calls `set` for each of `options`, "name=value;name=value"; empty ones are left out.
/// Errors, about `text` and the option: those of `set`; kInvalidArgument, if one is
/// there twice.
[[nodiscard]] Result<void> read_options(
    std::string_view text, std::string_view options,
    const std::function<Result<void>(const std::string& name,
                                     const std::string& value)>& set);

}  // namespace kiln
