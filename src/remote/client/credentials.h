// Who asks a server: the file that KILN_REMOTE_AUTH names, and AWS's variables and
// files. No error here has any part of a secret.

#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "kiln/result.h"
#include "remote/proxy.h"
#include "remote/server_address.h"
#include "remote/transfer.h"

namespace kiln::remote {

/// Files that say who asks, and who is believed: absolute paths, since kiln-remote has
/// a working directory of its own. Empty: none.
struct ServerFiles {
  std::filesystem::path auth;         // KILN_REMOTE_AUTH
  std::filesystem::path ca;           // KILN_REMOTE_CA
  std::filesystem::path certificate;  // KILN_REMOTE_CERT: certificate and key in PEM
};

/// A variable of this process. In a set-uid program none is set, since its caller must
/// not choose who asks, or whom.
[[nodiscard]] std::string process_variable(const char* name);

/// Of a file with secrets. `what` begins the message. Errors: kUntrusted, if another
/// user owns it or can read it; kNotFound; kIo.
[[nodiscard]] Result<void> check_private(const std::filesystem::path& path,
                                         std::string_view what);

/// By the line of `files.auth` for this server: see auth_file.h. "aws" alone means
/// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the profile
/// AWS_PROFILE. An empty region of the server: AWS_REGION, AWS_DEFAULT_REGION, that of
/// the profile, us-east-1. With the proxy that the server is reached through, whose
/// password a line with the proxy's URL may have; of a folder all is empty. Errors:
/// kInvalidArgument; those of check_private() and read_aws_profile().
[[nodiscard]] Result<Credentials> read_credentials(const ServerFiles& files,
                                                   const ServerAddress& server);

}  // namespace kiln::remote
