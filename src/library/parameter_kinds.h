// Tells which parameters of a kernel are whole numbers and which are floating-point.

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/kernel.h"

namespace kiln {

/// Of a kernel with `count` parameters: by the types in its lowered name, which C++
/// mangles; else, as for an extern "C" kernel, by the .param types of its PTX, for
/// which `ptx` is asked. An address is a whole number. kAny for all that neither tells,
/// such as structs and 16-bit floats.
[[nodiscard]] std::vector<ArgumentKind> parameter_kinds(
    const std::string& lowered_name, std::size_t count,
    const std::function<std::string()>& ptx);

/// For tests: of the types alone, as c++filt prints them: "void f<int>(float*, int)".
[[nodiscard]] std::vector<ArgumentKind> kinds_in_signature(std::string_view signature);

/// For tests: of the .param types of this entry point; empty if it is not there.
[[nodiscard]] std::vector<ArgumentKind> kinds_in_ptx(std::string_view ptx,
                                                     std::string_view entry);

}  // namespace kiln
