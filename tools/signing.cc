#include "tools/signing.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>
#include <tuple>

#include "cache/file_system.h"
#include "cache/key_file.h"
#include "codec/private_key.h"
#include "tools/context.h"
#include "util/posix_error.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kSignerLimit{60'000};
constexpr std::size_t kMostBytes = 4096;  // any pipe takes so many without a reader

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return posix_error("pipe", "for the signer", errno);
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// Everything until the other end is closed; false: not within the time, or too much.
bool read_until(int fd, Clock::time_point deadline, std::string& text) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    const int n = ::poll(&ready, 1, left > 0 ? static_cast<int>(left) : 0);
    if (n == 0 || (n < 0 && errno != EINTR))
      return false;
    if (n < 0)
      continue;
    std::array<char, kMostBytes> chunk{};
    const ssize_t size = ::read(fd, chunk.data(), chunk.size());
    if (size <= 0)
      return size == 0;
    text.append(chunk.data(), static_cast<std::size_t>(size));
    if (text.size() > kMostBytes)
      return false;
  }
}

/// The status of a process that ends by `deadline`; -1 else.
int wait_until(pid_t pid, Clock::time_point deadline) {
  int status = -1;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() >= deadline)
      return -1;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return status;
}

Result<Ed25519Signature> sign_by_command(const std::string& command, ByteView message) {
  const std::string output = KILN_TRY(run_command(command, message, kSignerLimit));
  Ed25519Signature signature{};
  if (output.size() != signature.size())
    return fail(ErrorCode::kUnavailable,
                "--signer {}: it wrote {} bytes, and a signature has {}", command,
                output.size(), signature.size());
  std::ranges::copy(as_bytes(output), signature.begin());
  return signature;
}

/// The one of `keys` that belongs to the command, which signs once to show it.
Result<Signer> command_signer(const std::string& command, const TrustedKeys& keys) {
  const Blake2b512 probe = KILN_TRY(Blake2bHasher::of(as_bytes("kiln")));
  const Ed25519Signature signature = KILN_TRY(sign_by_command(command, probe));
  const auto key = std::ranges::find_if(
      keys.keys, [&](auto& each) { return verify(each.key, probe, signature); });
  if (key == keys.keys.end())
    return refuse(
        "--signer {}: its signature is by none of the {} keys of --keys; name its "
        "public key in --keys",
        command, keys.keys.size());
  return Signer{
      key->key.id,
      [command, own = key->key](ByteView message) -> Result<Ed25519Signature> {
        const auto made = KILN_TRY(sign_by_command(command, message));
        if (!verify(own, message, made))
          return fail(ErrorCode::kUnavailable, "--signer {}: its signature is wrong",
                      command);
        return made;
      }};
}

}  // namespace

void add_signing_options(OptionSet& cli, SigningOptions& options,
                         const std::string& more) {
  cli.option("--sign", options.key, "FILE",
             "Sign with this private key, of `kiln key new` (default: "
             "$KILN_REMOTE_SIGN)" +
                 more);
  cli.option("--signer", options.signer, "COMMAND",
             "Sign by this command of the shell instead: it gets the bytes to sign, "
             "mostly a BLAKE2b-512 digest, on its standard input, and writes the 64 "
             "bytes of the Ed25519 signature; --keys has its public key");
}

void add_keys_option(OptionSet& cli, SigningOptions& options,
                     const std::string& meaning) {
  cli.option("--keys", options.keys, "FILE", meaning);
}

Result<std::shared_ptr<const TrustedKeys>> trusted_keys(const Config& config,
                                                        const std::string& keys) {
  const std::filesystem::path path =
      keys.empty() ? config.keys : std::filesystem::path(keys);
  if (path.empty())
    return nullptr;
  cache::KeyFile file(
      cache::real_file_system(),
      cache::TrustPolicy::of_this_process(config.trusted_uids, config.trusted_gids),
      path);
  return from_input(file.keys());
}

Result<std::vector<Signer>> signers(const Config& config, const SigningOptions& options,
                                    const TrustedKeys* keys) {
  std::vector<Signer> found;
  if (!options.signer.empty())
    found.push_back(KILN_TRY(
        command_signer(options.signer, keys != nullptr ? *keys : TrustedKeys())));
  const std::filesystem::path key = options.key.empty() && options.signer.empty()
                                        ? config.sign
                                        : std::filesystem::path(options.key);
  if (!key.empty())
    found.push_back(KILN_TRY(from_input(PrivateKey::read(key))).signer());
  return found;
}

Result<std::string> run_command(const std::string& command, ByteView input,
                                milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  const auto unavailable = [&](std::string_view what) {
    return fail(ErrorCode::kUnavailable, "{}: {}", command, what);
  };
  Pipe in = KILN_TRY(make_pipe());
  Pipe out = KILN_TRY(make_pipe());
  if (input.size() > kMostBytes ||
      ::write(in.write.get(), input.data(), input.size()) !=
          static_cast<ssize_t>(input.size()))
    return unavailable("its input cannot be written");
  in.write = UniqueFd();
  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, in.read.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out.write.get(), STDOUT_FILENO);
  sigset_t defaults{};
  ::sigemptyset(&defaults);
  ::sigaddset(&defaults, SIGPIPE);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  std::string shell = "/bin/sh";
  std::string option = "-c";
  std::string words = command;
  const std::array<char*, 4> arguments{shell.data(), option.data(), words.data(),
                                       nullptr};
  pid_t pid = 0;
  const int err = ::posix_spawn(&pid, shell.c_str(), &actions, &attributes,
                                arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (err != 0)
    return posix_error("start", command, err);
  in.read = UniqueFd();
  out.write = UniqueFd();
  std::string output;
  const bool ended = read_until(out.read.get(), deadline, output);
  const int status = ended ? wait_until(pid, deadline) : -1;
  if (status == -1) {
    ::kill(-pid, SIGKILL);
    std::ignore = wait_until(pid, Clock::now() + std::chrono::seconds(1));
    if (output.size() > kMostBytes)
      return unavailable("it writes too much");
    return fail(ErrorCode::kTimeout, "{}: it did not end within {} s", command,
                limit.count() / 1000);
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return unavailable(WIFEXITED(status)
                           ? fmt::format("it failed with {}", WEXITSTATUS(status))
                           : fmt::format("signal {} ended it", WTERMSIG(status)));
  return output;
}

}  // namespace kiln::tools
