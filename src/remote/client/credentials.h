// Who asks a server: the file that KILN_REMOTE_AUTH names, and AWS's variables. No
// error here has any part of a secret.

#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "kiln/result.h"
#include "remote/transfer.h"

namespace kiln::remote {

/// Files that say who asks, and who is believed: absolute paths, since kiln-remote has
/// a working directory of its own. Empty: none.
struct ServerFiles {
  std::filesystem::path auth;         // KILN_REMOTE_AUTH
  std::filesystem::path ca;           // KILN_REMOTE_CA
  std::filesystem::path certificate;  // KILN_REMOTE_CERT: certificate and key in PEM
};

/// Reads `files.auth`: "bearer TOKEN", "basic USER:PASSWORD", "aws KEY:SECRET", or
/// "aws" alone, with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
/// `region` is that of the server; empty: AWS_REGION, AWS_DEFAULT_REGION, us-east-1.
/// Errors: kUntrusted, if another user owns that file or the certificate's or can read
/// it; kInvalidArgument; kNotFound; kIo.
[[nodiscard]] Result<Credentials> read_credentials(const ServerFiles& files,
                                                   const std::string& region);

}  // namespace kiln::remote
