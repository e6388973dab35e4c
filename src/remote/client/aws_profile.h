// Profiles of AWS's own programs' files, ~/.aws/credentials and ~/.aws/config. No error
// has any part of a secret.

#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kiln/result.h"
#include "remote/proxy.h"

namespace kiln::remote {

/// "aws_access_key_id", "region", ...
using AwsProfile = std::map<std::string, std::string, std::less<>>;

/// By AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE, or below HOME; the first file
/// wins. The profile, its source_profile, and so on: each but the last has a role_arn,
/// which the next one's identity assumes. The last has keys or a credential_process, or
/// a role_arn with a web_identity_token_file or credential_source. Errors: kNotFound:
/// no such profile, or settings alone; kInvalidArgument: an identity that cannot be
/// had, such as a login; kUntrusted: others may read the file with the keys, or write
/// the one with a command or role.
[[nodiscard]] Result<std::vector<AwsProfile>> read_aws_profiles(
    const std::string& name, const Variable& variable);

}  // namespace kiln::remote
