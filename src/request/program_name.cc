#include "request/program_name.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kiln::request {
namespace {

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7F;
}

bool is_inside_a_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

std::string as_utf8(std::string_view text) {
  using nlohmann::json;
  constexpr auto kReplace = json::error_handler_t::replace;
  return json::parse(json(text).dump(-1, ' ', false, kReplace)).get<std::string>();
}

}  // namespace

std::string program_name(std::string_view file_name) {
  std::string_view last = file_name.substr(file_name.rfind('/') + 1);
  if (last.size() > kMaxProgramNameBytes) {
    last.remove_prefix(last.size() - kMaxProgramNameBytes);
    while (!last.empty() && is_inside_a_character(last.front())) last.remove_prefix(1);
  }
  if (last.empty() || last == "." || last == "..")
    return std::string(kNoName);
  std::string name = as_utf8(last);
  std::replace_if(name.begin(), name.end(), is_control, '_');
  return name;
}

}  // namespace kiln::request
