#include "tools/remote/remote_pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "util/log.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using remote::Answer;
using remote::BodyFile;
using remote::Method;
using remote::Server;
using remote::Verdict;

/// A pack is larger than an object, and may be as large as disks are. One that stalls
/// is given up as ever.
constexpr remote::TransferLimits kPackLimits{
    .whole = std::chrono::minutes(10), .most_bytes = 64ULL << 30U, .grows = true};
constexpr remote::TransferLimits kMinisigLimits{.most_bytes = 65536};
constexpr int kMostTries = 3;  // of one pack by one server

std::string minisig_url(const RemoteRun& run, std::size_t server,
                        const std::string& name) {
  return run.address(server).pack_url(name) + ".minisig";
}

/// Succeeds if the server has the file that it has taken, as far as size and end show;
/// whoever may only write cannot look.
Result<void> check_arrived(RemoteRun& run, std::size_t server, const std::string& url,
                           const BodyFile& file, std::uint64_t bytes) {
  const std::uint64_t size = std::min<std::uint64_t>(bytes, 4096);
  const Answer there =
      run.ask(server, Method::kGet, [&](Server& asked, Server::Done done) {
        return asked.get_end(url, bytes - size, std::move(done), {.most_bytes = size});
      });
  // Too much to look at, where the server knows no parts.
  const bool is_it =
      there.whole_bytes.value_or(bytes) == bytes &&
      (there.rejected ||
       (there.is_there && there.end_bytes == KILN_TRY(file.read(bytes - size, size))));
  if (is_it || there.verdict == Verdict::kDenied)
    return {};
  return fail(ErrorCode::kUnavailable,
              "{} has taken the file and does not give it back: {}. Look into "
              "its log, and whether its disk is full",
              url, there.why.empty() ? "it has none, or another one" : there.why);
}

/// Each try goes on where the one before was cut.
Answer get(RemoteRun& run, std::size_t server, const std::string& url,
           const BodyFile& into) {
  const auto resume = std::make_shared<remote::Resume>();
  const auto start = [&](Server& asked, Server::Done done) {
    return asked.get_file(
        url, into, *resume,
        [resume, done = std::move(done)](Answer answer) {
          *resume = answer.resume;
          done(std::move(answer));
        },
        kPackLimits);
  };
  return run.ask(server, Method::kGet, start, kMostTries - 1);
}

/// What is known of the servers.
struct Search {
  std::vector<bool> is_done;  // by server: it is not asked any more
  std::optional<Error> failure;
};

/// False: none of the servers has it now. Errors: those of this machine.
Result<bool> fetch_once(RemoteRun& run, const std::string& name, const BodyFile& into,
                        const PackCheck& check, Search& search) {
  for (std::size_t server = 0; server < run.server_count(); ++server) {
    if (search.is_done[server])
      continue;
    run.forgive(server, Method::kGet);
    const Answer answer = get(run, server, run.address(server).pack_url(name), into);
    if (answer.verdict == Verdict::kAbandoned)
      return tl::unexpected(error_of(answer));
    if (answer.verdict == Verdict::kGood && !answer.file_bytes)
      continue;
    auto used = answer.file_bytes ? check(server, *answer.file_bytes)
                                  : Result<void>(tl::unexpected(error_of(answer)));
    if (used)
      return true;
    Error& error = used.error();
    if (error.code == ErrorCode::kIo || error.code == ErrorCode::kCancelled)
      return tl::unexpected(std::move(error));
    // One that breaks off was tried three times, each behind what there was.
    search.is_done[server] =
        answer.verdict == Verdict::kDenied || answer.rejected ||
        (answer.file_bytes ? error.code != ErrorCode::kUnavailable : answer.bytes > 0);
    if (search.is_done[server])
      log(LogLevel::kInfo, {"a pack is not used: ", error.message});
    // A pack that is refused says more than a server that is down.
    if (!search.failure || search.failure->code == ErrorCode::kUnavailable)
      search.failure = std::move(error);
  }
  return false;
}

}  // namespace

Result<void> check_pack_name(const std::string& name) {
  if (remote::is_pack_name(name))
    return {};
  return refuse(
      "'{}' is no name of a pack: letters and digits, and between "
      "them '-', '_' and '.'",
      name);
}

Result<void> send_pack(RemoteRun& run, std::size_t server, const std::string& name,
                       const RemotePack& pack) {
  const auto put = [&](const std::string& to, const BodyFile& file,
                       std::uint64_t bytes) -> Result<void> {
    const auto start = [&](Server& asked, Server::Done done) {
      return asked.put_file(to, file, bytes, std::move(done), kPackLimits);
    };
    const Answer answer = run.ask(server, Method::kPut, start, kMostTries - 1);
    return answer.is_there ? check_arrived(run, server, to, file, bytes)
                           : tl::unexpected(error_of(answer));
  };
  KILN_TRY(run.check_is_cache(server));
  // First, so that whoever sees the pack sees its signature.
  if (!pack.minisig.empty()) {
    const auto minisig = KILN_TRY(BodyFile::make());
    KILN_TRY(minisig.append(as_bytes(pack.minisig)));
    KILN_TRY(put(minisig_url(run, server, name), minisig, pack.minisig.size()));
  }
  return put(run.address(server).pack_url(name), pack.file, pack.bytes);
}

Result<void> fetch_pack(RemoteRun& run, const std::string& name,
                        std::chrono::milliseconds wait, const BodyFile& into,
                        const PackCheck& check) {
  remote::Poll poll(std::chrono::steady_clock::now() + wait, run.random());
  Search search{.is_done = std::vector<bool>(run.server_count()), .failure = {}};
  for (;;) {
    if (KILN_TRY(fetch_once(run, name, into, check, search)))
      return {};
    const bool is_over =
        std::ranges::find(search.is_done, false) == search.is_done.end();
    const auto next =
        is_over ? std::nullopt : poll.next(std::chrono::steady_clock::now());
    if (!next && search.failure)
      return tl::unexpected(*std::move(search.failure));
    if (!next)
      return fail(ErrorCode::kNotFound, "no server has the pack {}: {}", name,
                  run.address(0).pack_url(name));
    if (!run.wait_until(*next))
      return fail(ErrorCode::kCancelled, "stopped");
  }
}

Result<std::string> fetch_minisig(RemoteRun& run, std::size_t server,
                                  const std::string& name) {
  const std::string url = minisig_url(run, server, name);
  const auto file = KILN_TRY(BodyFile::make());
  const Answer answer =
      run.ask(server, Method::kGet, [&](Server& asked, Server::Done done) {
        return asked.get_file(url, file, {}, std::move(done), kMinisigLimits);
      });
  if (answer.verdict != Verdict::kGood)
    return tl::unexpected(error_of(answer));
  const Bytes text = KILN_TRY(file.read(0, answer.file_bytes.value_or(0)));
  return std::string(as_text(text));
}

}  // namespace kiln::tools
