// Keys of AWS from its own programs' files, ~/.aws/credentials and ~/.aws/config. No
// error has any part of a secret.

#pragma once

#include <string>

#include "kiln/result.h"

namespace kiln::remote {

struct AwsKeys {
  std::string pair{};    // "key:secret"
  std::string token{};   // of a session; empty: none
  std::string region{};  // empty: nothing is said
};

/// Of a profile, by AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE, or below HOME; the
/// first file wins. Errors: kNotFound: no such profile; kInvalidArgument: it has no
/// keys, but others' rights, say; kUntrusted: others may read the file with the keys.
[[nodiscard]] Result<AwsKeys> read_aws_profile(const std::string& name);

}  // namespace kiln::remote
