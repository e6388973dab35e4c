// Names of C++ as sources have them, from those that the compiler mangled.

#pragma once

#include <string>
#include <string_view>

namespace kiln {

/// "void scale<float>(float*)" of "_Z5scaleIfEvPT_"; empty for a name that is not
/// mangled.
[[nodiscard]] std::string demangled(const std::string& name);

/// "phys::energy" of "_ZN4phys6energyEi", a function that is no template; any other
/// name as it is.
[[nodiscard]] std::string source_name(std::string_view name);

}  // namespace kiln
