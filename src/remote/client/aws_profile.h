// Profiles of AWS's own programs' files, ~/.aws/credentials and ~/.aws/config. No error
// has any part of a secret.

#pragma once

#include <functional>
#include <map>
#include <string>

#include "kiln/result.h"

namespace kiln::remote {

/// "aws_access_key_id", "region", ...
using AwsProfile = std::map<std::string, std::string, std::less<>>;

/// By AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE, or below HOME; the first file
/// wins. It has a key with its secret, a credential_process, or a role_arn and a
/// web_identity_token_file. Errors: kNotFound: no such profile, or settings alone;
/// kInvalidArgument: it names another identity, such as a login; kUntrusted: others may
/// read the file with the keys, or write the one with the command.
[[nodiscard]] Result<AwsProfile> read_aws_profile(const std::string& name);

}  // namespace kiln::remote
