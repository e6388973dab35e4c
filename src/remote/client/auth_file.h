// The lines of the file that KILN_REMOTE_AUTH names: who asks which server. Knows no
// environment and no other file. No error has any part of a line.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"

namespace kiln::remote {

/// "[URL] KIND VALUE": who asks the servers whose URL begins so.
struct AuthLine {
  std::size_t number = 0;  // from 1
  std::string prefix{};    // without a slash at the end; empty: all other servers
  std::string kind{};      // "none", "bearer", "basic", "aws", "command", "query"
  std::string value{};
  std::string error{};  // not empty: it is wrong, and nobody asks these servers
};

/// The prefix of a wrong line that no server's URL has.
inline constexpr const char* kNobody = "?";

inline constexpr const char* kAuthForms =
    "'bearer TOKEN', 'basic USER:PASSWORD', 'aws', 'aws KEY:SECRET', 'aws KEY:SECRET "
    "SESSION-TOKEN', 'aws profile NAME', 'command PROGRAM ARGUMENTS' or 'none', "
    "perhaps behind the URL of a server, or 'query STRING' behind it";

/// Takes the first word off, with the blanks behind it.
std::string_view next_word(std::string_view& text);

/// Empty lines and those that begin with '#' are left out. A line of another form, and
/// each of two with one URL, has an error. Errors: kInvalidArgument: there is no line.
[[nodiscard]] Result<std::vector<AuthLine>> parse_auth_file(std::string_view text);

/// The line with the longest prefix of `url`, which ends there or before a slash:
/// https://a is no prefix of https://a.evil. Null: none.
[[nodiscard]] const AuthLine* line_for(const std::vector<AuthLine>& lines,
                                       std::string_view url);

}  // namespace kiln::remote
