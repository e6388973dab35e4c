#include "tools/remote/remote_pack.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "util/try.h"

namespace kiln::tools {
namespace {

using remote::Answer;
using remote::Method;
using remote::Server;
using remote::Verdict;

/// A pack is larger than an object. One that stalls is given up as ever.
constexpr remote::TransferLimits kLimits{.whole = std::chrono::minutes(10)};

std::string minisig_url(const RemoteRun& run, std::size_t server,
                        const std::string& name) {
  return run.address(server).pack_url(name) + ".minisig";
}

Answer get(RemoteRun& run, std::size_t server, const std::string& url) {
  return run.ask(server, Method::kGet, [&](Server& asked, Server::Done done) {
    return asked.get_file(url, std::move(done), kLimits);
  });
}

/// nullopt: none of the servers has it.
Result<std::optional<FetchedPack>> fetch_once(RemoteRun& run, const std::string& name) {
  std::optional<Error> failure;
  for (std::size_t server = 0; server < run.server_count(); ++server) {
    const std::string url = run.address(server).pack_url(name);
    Answer pack = get(run, server, url);
    if (pack.verdict != Verdict::kGood) {
      failure = error_of(pack);
      continue;
    }
    if (pack.file)
      return FetchedPack{*std::move(pack.file), server};
  }
  if (failure)
    return tl::unexpected(*std::move(failure));
  return std::nullopt;
}

}  // namespace

Result<void> check_pack_name(const std::string& name) {
  if (remote::is_pack_name(name))
    return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is no name of a pack: letters and digits, and between "
                          "them '-', '_' and '.'",
                          name));
}

Result<void> send_pack(RemoteRun& run, std::size_t server, const std::string& name,
                       const RemotePack& pack) {
  const auto put = [&](const std::string& to,
                       const std::string& bytes) -> Result<void> {
    const Answer answer =
        run.ask(server, Method::kPut, [&](Server& asked, Server::Done done) {
          return asked.put_file(to, bytes, std::move(done), kLimits);
        });
    return answer.is_there ? Result<void>() : tl::unexpected(error_of(answer));
  };
  // First, so that whoever sees the pack sees its signature.
  if (!pack.minisig.empty())
    KILN_TRY(put(minisig_url(run, server, name), pack.minisig));
  return put(run.address(server).pack_url(name), pack.bytes);
}

Result<FetchedPack> fetch_pack(RemoteRun& run, const std::string& name,
                               std::chrono::milliseconds wait) {
  remote::Poll poll(std::chrono::steady_clock::now() + wait, run.random());
  for (;;) {
    if (auto fetched = KILN_TRY(fetch_once(run, name)))
      return *std::move(fetched);
    const auto next = poll.next(std::chrono::steady_clock::now());
    if (!next)
      return fail(ErrorCode::kNotFound,
                  fmt::format("no server has the pack {}: {}", name,
                              run.address(0).pack_url(name)));
    if (!run.wait_until(*next))
      return fail(ErrorCode::kCancelled, "stopped");
  }
}

Result<std::string> fetch_minisig(RemoteRun& run, std::size_t server,
                                  const std::string& name) {
  Answer minisig = get(run, server, minisig_url(run, server, name));
  if (minisig.verdict != Verdict::kGood)
    return tl::unexpected(error_of(minisig));
  return std::move(minisig.file).value_or("");
}

}  // namespace kiln::tools
