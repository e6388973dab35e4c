// What a build as NVRTC's has of its program's name. Callers name programs by temporary
// files, so a key has the name only where it is likely to matter; an artifact that has
// it all the same says so, and answers no program of another name.

#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kiln {

/// True if PTX, a cubin or LTO-IR was made otherwise than it would be under another
/// name: it has the name's last component as a string, or a symbol of internal linkage,
/// which NVRTC makes of the name. A constant that is computed from __FILE__ by a macro
/// of a header and leaves nothing of it is not seen.
[[nodiscard]] bool is_named_in_image(std::string_view image, std::string_view name);

/// The log of a program called `name`, if `log` is that of the same program called
/// `was`; nullopt if that cannot be told: NVRTC begins its messages with the name, and
/// `was` is anywhere else.
[[nodiscard]] std::optional<std::string> renamed_log(std::string_view log,
                                                     std::string_view was,
                                                     std::string_view name);

/// True if NVRTC's log of a failure is that of a program called `name`.
[[nodiscard]] bool is_failure_of(std::string_view log, std::string_view name);

}  // namespace kiln
