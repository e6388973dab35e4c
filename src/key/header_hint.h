// What to do about a header that the compiler did not find.

#pragma once

#include "key/header_snapshot.h"
#include "kiln/result.h"

namespace kiln::key {

/// `error`, with one more line if the compiler found no file for an #include and the
/// reason is known: what is there is no file, or may not be read; the name belongs to
/// the C++ standard library, which NVRTC lacks; an include directory does not exist.
[[nodiscard]] Error with_header_hint(Error error, const HeaderSnapshot& headers);

}  // namespace kiln::key
