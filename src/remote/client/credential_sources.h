// Credentials of others: what programs print, and where keys of AWS come from:
// variables, profiles, roles of web identities, of containers and of instances. Opens
// no connection itself. No error has any part of a secret.

#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "kiln/result.h"
#include "remote/proxy.h"
#include "remote/transfer.h"

namespace kiln::remote {

using WallTime = std::chrono::system_clock::time_point;

/// Credentials, and where they were found.
struct FoundCredentials {
  Credentials who{};
  std::string source{};  // "profile kernels", for people; empty: in a line of the file
  std::optional<WallTime> ends{};
};

/// Sends a request, and waits for the body of its answer. Errors: kUnavailable, for
/// every answer but 200.
using Fetch = std::function<Result<std::string>(TransferRequest)>;

/// How sources are asked.
struct Asking {
  Fetch fetch;
  Variable variable;
};

/// `value`: "" for the first of AWS's sources that is there, "KEY:SECRET", "KEY:SECRET
/// TOKEN", "profile NAME". `region`: where STS is asked; empty: by AWS's variables and
/// the profile, else us-east-1; the result has a profile's. May take some ten seconds.
/// Errors: those of read_aws_profiles(); kInvalidArgument, kUnavailable.
[[nodiscard]] Result<FoundCredentials> find_aws_keys(std::string_view value,
                                                     const std::string& region,
                                                     const Asking& ask);

/// What `command` prints: keys of AWS as its credential_process does, or the header
/// Authorization as Bazel's helpers do, and it is given the URL as these are. Its words
/// are parted by blanks outside of '"'. Errors: kTimeout, kUnavailable,
/// kInvalidArgument.
[[nodiscard]] Result<FoundCredentials> ask_command(std::string_view command,
                                                   std::string_view url);

/// `region`, or that of AWS's variables, or us-east-1.
[[nodiscard]] std::string region_for(const std::string& region, const Asking& ask);

/// As a part of a URL has it.
[[nodiscard]] std::string escaped(std::string_view text);

/// AWS's code of an error, such as "AccessDenied"; "" if the body has none.
[[nodiscard]] std::string_view error_code_of(std::string_view body);

/// Nothing that may not stand in a header or a line: no blank, no control character.
[[nodiscard]] bool is_word(std::string_view text);

}  // namespace kiln::remote
