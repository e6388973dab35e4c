// What to do about a header that the compiler did not find.

#pragma once

#include <cstdint>
#include <string_view>

#include "key/header_snapshot.h"
#include "kiln/result.h"

namespace kiln::key {

/// Whether a source can have Kiln's standard headers; if not, why.
enum class StandardHeaders : std::uint8_t {
  kSearched,
  kOff,           // the request's option -nostdinc++
  kNoLibcudacxx,  // there is no cuda/std in any folder that is searched
  kNotInstalled,  // Kiln's folder of them was not found
};

/// `error`, with one more line if the compiler found no file for an #include and the
/// reason is known: what is there is no file, or may not be read; the name belongs to
/// the C++ standard library or to the CUDA toolkit; an include directory does not
/// exist.
/// `wheels` names those that have the toolkit's headers.
[[nodiscard]] Error with_header_hint(
    Error error, const HeaderSnapshot& headers,
    StandardHeaders standard = StandardHeaders::kSearched,
    std::string_view wheels = "nvidia-cuda-runtime and nvidia-cuda-cccl");

}  // namespace kiln::key
