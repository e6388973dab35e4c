// The words of PTX text (PTX ISA, "Lexical elements"); comments and blanks are left
// out.

#pragma once

#include <string_view>

namespace kiln::ptx::syntax {

/// One thread at a time.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) { advance(); }

  /// A name with its dots ("ld.global.L1::no_allocate.f32"), a directive (of ".reg.b16"
  /// the first), a number, a string in its quotes, or one other character; "" at the
  /// end.
  [[nodiscard]] std::string_view peek() const { return token_; }
  std::string_view next();
  /// True, and behind it, if it is next.
  bool take(std::string_view token);

  /// Where the next token begins, and where the last one ended.
  [[nodiscard]] const char* begin() const { return token_.data(); }
  [[nodiscard]] const char* end() const { return last_end_; }
  /// Of the next token, from 1.
  [[nodiscard]] std::size_t line() const;

 private:
  void advance();
  void skip_blanks();

  std::string_view text_;
  std::size_t at_ = 0;
  std::string_view token_;
  const char* last_end_ = nullptr;
};

[[nodiscard]] bool is_name(std::string_view token);
[[nodiscard]] bool is_number(std::string_view token);

}  // namespace kiln::ptx::syntax
