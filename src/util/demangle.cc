#include "util/demangle.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace kiln {

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text != nullptr ? text.get() : "";
}

std::string source_name(std::string_view name) {
  if (!name.starts_with("_Z"))
    return std::string(name);
  const std::string text = demangled(std::string(name));
  const std::string found = text.substr(0, text.find('('));
  // A template has its return type before its name.
  return found.empty() || found.find_first_of("< ") != std::string::npos
             ? std::string(name)
             : found;
}

}  // namespace kiln
