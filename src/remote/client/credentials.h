// Who asks a server: the file that KILN_REMOTE_AUTH names, and AWS's variables. No
// error here has any part of a secret.

#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

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

/// Reads `files.auth`: "bearer TOKEN", "basic USER:PASSWORD", "aws KEY:SECRET", or
/// "aws" alone, with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
/// An empty region of the server: AWS_REGION, AWS_DEFAULT_REGION, us-east-1. With the
/// proxy that the server is reached through; of a folder all is empty.
/// Errors: kUntrusted, if another user owns that file or the certificate's or can read
/// it; kInvalidArgument; kNotFound; kIo.
[[nodiscard]] Result<Credentials> read_credentials(const ServerFiles& files,
                                                   const ServerAddress& server);

}  // namespace kiln::remote
