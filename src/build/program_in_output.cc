#include "build/program_in_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <span>

namespace kiln {
namespace {

/// As PTX writes a string.
std::string decimals(std::string_view text) {
  return fmt::format(
      "{}", fmt::join(std::span(reinterpret_cast<const unsigned char*>(text.data()),
                                text.size()),
                      ", "));
}

}  // namespace

bool is_named_in_image(std::string_view image, std::string_view name) {
  const std::size_t folder = name.rfind('/') + 1;
  const std::string_view last = folder < name.size() ? name.substr(folder) : name;
  return std::ranges::any_of(
      std::initializer_list<std::string>{"_INTERNAL_", "_GLOBAL__N", std::string(last),
                                         decimals(last)},
      [&](const std::string& sign) { return image.find(sign) != image.npos; });
}

std::optional<std::string> renamed_log(std::string_view log, std::string_view was,
                                       std::string_view name) {
  std::string renamed;
  std::size_t copied = 0;
  for (std::size_t at = log.find(was); at != log.npos; at = log.find(was, copied)) {
    const bool begins_line = at == 0 || log[at - 1] == '\n';
    if (!begins_line || !log.substr(at + was.size()).starts_with('('))
      return std::nullopt;
    renamed.append(log.substr(copied, at - copied)).append(name);
    copied = at + was.size();
  }
  return renamed.append(log.substr(copied));
}

bool is_failure_of(std::string_view log, std::string_view name) {
  return log.find(fmt::format("in the compilation of \"{}\".", name)) != log.npos;
}

}  // namespace kiln
