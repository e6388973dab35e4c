// kiln push: sends objects of the cache, or a pack, to remote caches.

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "build/artifact.h"
#include "cache/pack_identity.h"
#include "tools/in_threads.h"
#include "tools/open_cache.h"
#include "tools/output/progress.h"
#include "tools/pack_file.h"
#include "tools/remote/remote_pack.h"
#include "tools/remote/sender.h"
#include "tools/signing.h"
#include "tools/verbs.h"
#include "tools/wanted.h"
#include "util/absolute_path.h"
#include "util/log.h"
#include "util/scratch_file.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct PushOptions {
  std::vector<std::string> keys;
  std::string pack;
  std::string name;
  bool replace = false;
  bool with_source = false;
  SelectionOptions selection;
  SigningOptions signing;
};

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

Result<WantedList> find_work(Context& context, const PushOptions& options) {
  if (options.keys.empty())
    return are_requests(options.selection) ? find_requests(context, options.selection)
                                           : find_entries(context, options.selection);
  WantedList work;
  work.opened = KILN_TRY(open_cache(context.config));
  for (const Digest& key : KILN_TRY(resolve_keys(work.cache(), options.keys)))
    work.wanted.push_back({key, key.hex(), "", {}});
  return work;
}

Result<int> push_objects(Context& context, const PushOptions& options, RemoteRun& run,
                         const std::vector<Signer>& signers) {
  const auto began = Clock::now();
  KILN_TRY(check_signers(run, signers));
  const auto found = find_work(context, options);
  if (!found)  // unlike a file that is not there, an unknown key is no wrong input
    return finish_lookup(context, tl::unexpected(found.error()));
  const WantedList& work = *found;
  TransferTotals totals(run);
  std::vector<Wanted> without_key;
  {
    Progress progress(context.err, work.wanted.size());
    Sender sender(
        run, work.cache(),
        {signers,
         options.replace ? remote::Existing::kIsReplaced : remote::Existing::kStays,
         options.with_source ? Source::kIn : Source::kOut},
        &progress);
    for (const Wanted& each : work.wanted) {
      if (each.error)
        without_key.push_back(each);
      else
        sender.add(each);
    }
    totals = sender.finish();
  }
  for (Wanted& each : without_key) {
    Error error = *each.error;
    totals.add_problem(std::move(each), std::move(error));
  }
  print_problems(totals);
  using Of = TransferTotals::OfServer;
  if (context.json)
    print_json({{"objects", work.wanted.size()},
                {"sent", totals.sum(&Of::moved)},
                {"replaced", totals.sum(&Of::replaced)},
                {"already_there", totals.sum(&Of::already_there)},
                {"failed", totals.failed()},
                {"bytes", totals.bytes},
                {"seconds", seconds_since(began)},
                {"servers", servers_json(totals, "sent")},
                {"signed_by", key_names(signers)},
                {"problems", problems_json(totals)}});
  else
    print(context.out.fitted(fmt::format(
        "{} to {}: {}\n", counted(work.wanted.size(), "object", "objects"),
        counted(run.server_count(), "server", "servers"), sent_text(totals, "sent"))));
  return exit_code_of(totals, work.bad_lines);
}

/// A pack is sent as it is. Errors: kInvalidArgument, if it was packed --with-source.
Result<void> check_no_source(const cache::Pack& pack, const std::string& file,
                             const std::stop_token& stop) {
  std::atomic<bool> has_source = false;
  const HeldBytes held(kMostHeld);
  in_threads(kReadingThreads, pack.rows().size(), stop, [&](std::size_t i) {
    const cache::PackRow& row = pack.rows()[i];
    if (row.kind == cache::PackKind::kToolchain)
      return;
    const auto share = held.take(row.size);
    // Whoever fetches a bad one finds that out.
    if (const auto object = pack.read(row, cache::Depth::kHit)) {
      const auto part = without_source(*object);
      has_source = has_source || !part || *part;
    }
  });
  if (stop.stop_requested())
    return fail(ErrorCode::kCancelled, "stopped");
  if (has_source)
    return refuse(
        "{} has sources of programs beneath `kiln run`: push it "
        "--with-source, or pack it without",
        file);
  return {};
}

/// The BLAKE2b-512 of the file, made once.
using Hashed = std::function<Result<Blake2b512>()>;

/// As open_pack() checks a pack on the machine that pulls it.
Result<void> check_taken(const cache::Pack& pack, const std::string& minisig,
                         const Hashed& hashed, const TrustedKeys& keys) {
  if (const auto by = pack.check_signers(keys); by || minisig.empty())
    return by.map([](const auto&) {});
  const PublicKey beside = KILN_TRY(check_minisig(minisig, KILN_TRY(hashed()), keys));
  return pack.check_signers(keys, std::span(&beside, 1)).map([](const auto&) {});
}

void warn_if_refused(const cache::Pack& pack, const std::string& minisig,
                     const Hashed& hashed, const TrustedKeys& keys) {
  if (const auto taken = check_taken(pack, minisig, hashed, keys); !taken)
    log(LogLevel::kWarning, {"a machine with these KILN_REMOTE_KEYS refuses the pack: ",
                             taken.error().message});
}

/// The file, whole and sound, and its signature: by the signer of the command, else the
/// file beside it if `keys` trust that, else by KILN_REMOTE_SIGN.
/// What is signed under another name is an error: nobody would take it.
Result<RemotePack> read_pack(const Context& context, const PushOptions& options,
                             const std::string& name,
                             const std::vector<Signer>& signers,
                             const TrustedKeys* keys) {
  const std::string& file = options.pack;
  const auto path = absolute_path(file);
  const auto trust = cache::TrustPolicy::of_this_process(context.config.trusted_uids,
                                                         context.config.trusted_gids);
  const UniqueFd descriptor = KILN_TRY(open_packed_file(path, trust));
  const auto scratch = temporary_folder();
  const auto opened = KILN_TRY(open_pack(descriptor.get(), path, trust,
                                         {.is_needed = false}, std::span(&scratch, 1)));
  if (!options.with_source)
    KILN_TRY(check_no_source(*opened, file, context.stop->token()));
  RemotePack pack;
  pack.file = KILN_TRY(remote::BodyFile::copy_of(descriptor.get()));
  pack.bytes = KILN_TRY(pack.file.size());
  if (auto beside = read_minisig(path))
    pack.minisig = *std::move(beside);
  std::optional<Blake2b512> digest;
  const Hashed hashed = [&]() -> Result<Blake2b512> {
    if (!digest)
      digest = KILN_TRY(blake2b_of(descriptor.get(), path));
    return *digest;
  };
  if (!signers.empty()) {
    const bool is_asked =
        !options.signing.key.empty() || !options.signing.signer.empty();
    const bool is_good =
        !pack.minisig.empty() &&
        (keys == nullptr || check_minisig(pack.minisig, KILN_TRY(hashed()), *keys));
    if (is_asked || !is_good)
      pack.minisig = KILN_TRY(make_minisig(KILN_TRY(hashed()), signers.front(),
                                           fmt::format("file:{}\thashed", name)));
  }
  pack.is_signed = !opened->signatures().empty() || !pack.minisig.empty();
  for (const std::string_view own :
       {std::string_view(opened->header().name), signed_file(pack.minisig)}) {
    if (pack.is_signed && !own.empty() && !cache::check_pack_is(own, name))
      return refuse(
          "the pack calls itself {}, and that is signed: whoever asks "
          "for {} would refuse it. Make it under this name: kiln pack "
          "-o {}.kpack",
          own, name, bare_pack_name(name));
  }
  if (keys != nullptr && pack.is_signed)
    warn_if_refused(*opened, pack.minisig, hashed, *keys);
  return pack;
}

Result<int> push_pack(Context& context, const PushOptions& options, RemoteRun& run,
                      const std::vector<Signer>& signers, const TrustedKeys* keys) {
  if (signers.size() > 1)
    return refuse(
        "push: a signature file has one signature: sign the pack by both, `kiln pack "
        "--sign KEY --signer COMMAND`, or push it with one of them");
  const auto began = Clock::now();
  const std::string name = options.name.empty()
                               ? std::filesystem::path(options.pack).filename().native()
                               : options.name;
  KILN_TRY(check_pack_name(name));
  const RemotePack pack = KILN_TRY(read_pack(context, options, name, signers, keys));
  if (!pack.is_signed)
    KILN_TRY(check_signers(run, signers));
  TransferTotals totals(run);
  for (std::size_t i = 0; i < run.server_count(); ++i) {
    if (auto sent = send_pack(run, i, name, pack); sent) {
      ++totals.servers[i].moved;
      totals.bytes += pack.bytes;
      continue;
    } else {
      ++totals.servers[i].failed;
      totals.add_problem({.key = {}, .label = name, .arch = ""}, sent.error(),
                         run.address(i).base);
    }
  }
  print_problems(totals);
  if (context.json) {
    print_json({{"pack", name},
                {"sent", totals.sum(&TransferTotals::OfServer::moved)},
                {"failed", totals.problems.size()},
                {"bytes", totals.bytes},
                {"seconds", seconds_since(began)},
                {"servers", servers_json(totals, "sent")},
                {"problems", problems_json(totals)}});
  } else {
    for (std::size_t i = 0; i < run.server_count(); ++i) {
      if (totals.servers[i].moved > 0)
        print(fmt::format("{}: {}\n", run.address(i).pack_url(name),
                          format_size(pack.bytes)));
    }
  }
  return exit_code_of(totals);
}

Result<int> run(Context& context, const PushOptions& options) {
  KILN_TRY(check_one_choice("push", options.keys, options.pack, options.selection));
  const auto keys = KILN_TRY(trusted_keys(context.config));
  const auto signed_by = KILN_TRY(signers(context.config, options.signing, keys.get()));
  const auto remotes = KILN_TRY(RemoteRun::open(context, RemoteUse::kSend));
  return options.pack.empty()
             ? push_objects(context, options, *remotes, signed_by)
             : push_pack(context, options, *remotes, signed_by, keys.get());
}

}  // namespace

Run add_push(OptionSet& cli) {
  auto options = std::make_shared<PushOptions>();
  cli.argument("KEY", options->keys, "Objects with these keys");
  cli.option("--pack", options->pack, "FILE",
             "Send this pack of `kiln pack`, and the FILE.minisig beside it");
  add_selection_options(cli, options->selection);
  cli.group(kFleetGroup);
  cli.option("--name", options->name, "NAME",
             "The pack's name on the server (default: the name of FILE)");
  add_source_option(cli, options->with_source);
  cli.flag(
      "--replace", options->replace,
      "Send also objects that the server has, such as to sign them by another key");
  add_signing_options(cli, options->signing);
  cli.footer(
      "Without keys and selection all objects are sent. --arch and --template alone\n"
      "are the filters of `kiln ls`; the other words select the kernels that `kiln\n"
      "warm` would build. Each server of --remote gets them, except a server with\n"
      "mode=r.\n"
      "\n"
      "Examples:\n"
      "  kiln push --remote https://cache.example/kiln --sign signing.key\n"
      "  kiln push --pack job.kpack.zst\n");
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
