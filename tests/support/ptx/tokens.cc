#include "tests/support/ptx/tokens.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace kiln::ptx::syntax {
namespace {

bool is_digit(char each) {
  return each >= '0' && each <= '9';
}
bool is_letter(char each) {
  return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z');
}
bool starts_name(char each) {
  return is_letter(each) || each == '_' || each == '$' || each == '%' || each == '.';
}
bool is_in_name(char each) {
  return is_letter(each) || is_digit(each) || each == '_' || each == '$' || each == '.';
}

}  // namespace

bool is_name(std::string_view token) {
  return !token.empty() && starts_name(token.front());
}
bool is_number(std::string_view token) {
  return !token.empty() && is_digit(token.front());
}

std::size_t Tokens::line() const {
  const auto before = text_.substr(
      0, token_.data() == nullptr ? text_.size()
                                  : static_cast<std::size_t>(begin() - text_.data()));
  return 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
}

std::string_view Tokens::next() {
  const std::string_view token = token_;
  last_end_ = token.data() + token.size();
  advance();
  return token;
}

bool Tokens::take(std::string_view token) {
  if (token_ != token)
    return false;
  next();
  return true;
}

void Tokens::skip_blanks() {
  while (at_ < text_.size()) {
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("//"))
      at_ += std::min(rest.find('\n'), rest.size());
    else if (rest.starts_with("/*"))
      at_ += std::min(rest.find("*/"), rest.size() - 2) + 2;
    else if (std::string_view(" \t\r\n\f\v").find(rest.front()) !=
             std::string_view::npos)
      ++at_;
    else
      return;
  }
}

void Tokens::advance() {
  skip_blanks();
  const std::string_view rest = text_.substr(std::min(at_, text_.size()));
  std::size_t size = std::min<std::size_t>(rest.size(), 1);
  const auto extend = [&](auto is_part) {
    while (size < rest.size() && is_part(rest[size])) ++size;
  };
  if (rest.empty())
    size = 0;
  else if (rest.front() == '"')
    size = std::min(rest.find('"', 1), rest.size() - 1) + 1;
  else if (is_digit(rest.front()))
    // 1.5e-3 has a sign within; 0fBF800000 has not.
    extend([&](char each) {
      const bool is_exponent = rest[size - 1] == 'e' && !rest.starts_with("0x") &&
                               !rest.starts_with("0f") && !rest.starts_with("0d");
      return is_in_name(each) || (is_exponent && (each == '-' || each == '+'));
    });
  else if (starts_name(rest.front()))
    while (size < rest.size()) {
      const bool is_qualifier =
          rest.substr(size, 2) == "::" && rest.front() != '%' && rest.front() != '$';
      const bool is_next_directive = rest.front() == '.' && rest[size] == '.';
      if ((!is_in_name(rest[size]) && !is_qualifier) || is_next_directive)
        break;
      size += is_qualifier ? 2 : 1;
    }
  token_ = rest.substr(0, size);
  at_ += size;
}

}  // namespace kiln::ptx::syntax
