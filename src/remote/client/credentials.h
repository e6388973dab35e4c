// Who asks a server: the file that KILN_REMOTE_AUTH names, and AWS's variables and
// files. No error here has any part of a secret.

#pragma once

#include <filesystem>
#include <string_view>

#include "kiln/result.h"
#include "remote/client/credential_sources.h"
#include "remote/proxy.h"
#include "remote/server_address.h"

namespace kiln::remote {

/// Files that say who asks, and who is believed: absolute paths, since kiln-remote has
/// a working directory of its own. Empty: none.
struct ServerFiles {
  std::filesystem::path auth;         // KILN_REMOTE_AUTH
  std::filesystem::path ca;           // KILN_REMOTE_CA
  std::filesystem::path certificate;  // KILN_REMOTE_CERT: certificate and key in PEM
};

/// The variables of this process that credentials and proxies need, as they are now:
/// the program may change its own while another thread looks for credentials. In a
/// set-uid program none is set, since its caller must not choose who asks, or whom.
[[nodiscard]] Variable read_variables();

/// Of a file with secrets. `what` begins the message. Errors: kUntrusted, if another
/// user owns it or can read it; kNotFound; kIo.
[[nodiscard]] Result<void> check_private(const std::filesystem::path& path,
                                         std::string_view what);

/// By the line of `files.auth` for this server: see auth_file.h. "aws": see
/// find_aws_keys(). With the proxy that the server is reached through, whose password a
/// line with the proxy's URL may have; of a folder all is empty. May wait for a program
/// or a service. Errors: kInvalidArgument; those of check_private(), find_aws_keys()
/// and ask_command().
[[nodiscard]] Result<FoundCredentials> read_credentials(const ServerFiles& files,
                                                        const ServerAddress& server,
                                                        const Asking& ask);

/// The same errors, as far as they are those of `files` and of the variables of
/// proxies. Asks nobody.
[[nodiscard]] Result<void> check_credentials(const ServerFiles& files,
                                             const ServerAddress& server);

}  // namespace kiln::remote
