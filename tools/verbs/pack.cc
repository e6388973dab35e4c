// kiln pack: objects of the cache as one file, for other machines.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>

#include "cache/unix_time.h"
#include "kiln/version.h"
#include "toolchain/toolchain_files.h"
#include "tools/in_threads.h"
#include "tools/output/entries.h"
#include "tools/output/file_output.h"
#include "tools/output/progress.h"
#include "tools/pack_file.h"
#include "tools/remote/transfer_totals.h"
#include "tools/signing.h"
#include "tools/verbs.h"
#include "tools/wanted.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

using nlohmann::ordered_json;

struct PackOptions {
  std::string output;
  std::string serial;
  SelectionOptions selection;
  EntryNames names;
  SigningOptions signing;
  bool with_source = false;
};

/// Adds what is there and sound to the pack, in the order of `work`; the others get
/// their error.
Result<std::uint64_t> add_objects(Context& context, WantedList& work, bool with_source,
                                  cache::PackWriter& writer) {
  std::uint64_t packed = 0;
  std::optional<Error> failure;
  Progress progress(context.err, work.wanted.size());
  const std::stop_token stop = context.stop->token();
  std::stop_source failed;
  const std::stop_callback both(stop, [&] { failed.request_stop(); });
  const HeldBytes held(kMostHeld);
  Turns to_read;  // else those who hold bytes might wait for a turn of who holds none
  Turns turns;
  const auto add = [&](std::size_t i) {
    Wanted& each = work.wanted[i];
    std::shared_ptr<const void> share;
    to_read.take(i, [&] {
      if (!each.error)
        share = held.take(bytes_to_read(work.cache(), each.key));
    });
    if (each.error)
      return turns.take(i, [] {});
    progress.start(each.label);
    const auto object =
        sound_object(work.cache(), each.key, with_source ? Source::kIn : Source::kOut);
    turns.take(i, [&] {
      if (!object) {
        each.error = object.error();
      } else if (const auto added = failure ? Result<void>() : writer.add(*object);
                 !added) {
        failure = added.error();
        failed.request_stop();
      } else {
        ++packed;
      }
    });
    progress.finish(each.label, std::nullopt);
  };
  in_threads(kReadingThreads, work.wanted.size(), failed.get_token(), add);
  if (failure)
    return tl::unexpected(*std::move(failure));
  if (stop.stop_requested())
    return fail(ErrorCode::kCancelled, "stopped; no pack was written");
  return packed;
}

Result<void> check_output(const std::string& path) {
  if (path.empty() || path == "-")
    return refuse("pack: name the file to write: -o FILE");
  KILN_TRY(check_output_path("-o", path));
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    return refuse("-o {}: that is no regular file", path);
  return {};
}

Result<void> check_names(const SelectionOptions& selection, const EntryNames& names) {
  if (!is_given(names) || !are_requests(selection))
    return {};
  return refuse(
      "--name and --file are filters of the cache: they go with --arch and --template "
      "NAME, and not with a selection of `kiln warm`");
}

/// The time that a reproducible build gives to what it makes. Errors: kInvalidArgument.
Result<std::optional<std::int64_t>> source_date_ns() {
  constexpr std::int64_t kSecond = 1'000'000'000;
  constexpr const char* kVariable = "SOURCE_DATE_EPOCH";
  const auto text = process_environment()(kVariable);
  if (!text || text->empty())
    return std::nullopt;
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max() / kSecond;
  return static_cast<std::int64_t>(
             KILN_TRY(parse_number(kVariable, *text, {1, kMost}))) *
         kSecond;
}

/// When the newest of the objects was built, so that the same give the same pack; 0: no
/// object says it.
std::int64_t newest_ns(const WantedList& work) {
  std::int64_t newest = 0;
  for (const Wanted& each : work.wanted) {
    std::int64_t created = each.created_ns;
    if (const auto entry = each.error || created != 0
                               ? Result<std::optional<cache::Entry>>(std::nullopt)
                               : work.cache().describe(each.key);
        entry && *entry)
      created = (*entry)->created_ns;
    newest = std::max(newest, created);
  }
  return newest;
}

/// But for the toolchain, and the time where nothing sets it. Errors: kInvalidArgument.
Result<cache::PackHeader> begin_header(const PackOptions& options) {
  const auto set_ns = KILN_TRY(source_date_ns());
  // The time grows by itself.
  std::uint64_t serial =
      static_cast<std::uint64_t>(set_ns.value_or(cache::unix_now_ns())) / 1'000'000;
  if (!options.serial.empty())
    serial =
        KILN_TRY(parse_number("--serial", options.serial, {1, cache::kMostSerial}));
  return cache::PackHeader{
      .producer = fmt::format("kiln {}", version()),
      .name = std::filesystem::path(options.output).filename().native(),
      .created_ns = set_ns.value_or(0),
      .serial = serial};
}

/// What is written.
struct PackDone {
  const cache::PackHeader& header;
  const std::vector<Signer>& signed_by;
  std::uint64_t packed = 0;
  std::uint64_t bytes = 0;
};

/// Prints it, and what could not be packed. The exit status.
int report(const Context& context, const PackOptions& options, const WantedList& work,
           const PackDone& done) {
  std::uint64_t missing = 0;
  std::uint64_t failed = 0;
  ordered_json problems = ordered_json::array();
  for (const Wanted& each : work.wanted) {
    if (!each.error)
      continue;
    ++(each.error->code == ErrorCode::kNotFound ? missing : failed);
    print_error(fmt::format("{} {}: {}\n", printable_lines(each.label), each.arch,
                            printable_lines(each.error->message)));
    problems.push_back({{"key", each.key.hex()},
                        {"name", each.label},
                        {"arch", each.arch},
                        {"error", error_json(*each.error)}});
  }
  if (context.json) {
    ordered_json document{
        {"file", options.output},
        {"objects", done.packed},
        {"bytes", done.bytes},
        {"header", header_json(done.header)},
        {"missing", missing},
        {"failed", failed},
        {"toolchain", work.toolchains.empty()
                          ? ordered_json(nullptr)
                          : ordered_json(work.toolchains.front().name())},
        {"signed_by", key_names(done.signed_by)},
        {"problems", problems}};
    if (options.selection.skip_bad)
      document["bad_lines"] = work.bad_lines;
    print_json(document);
  } else {
    const std::string_view remedy =
        missing == 0 ? ""
                     : "; `kiln warm` with the same words builds the missing kernels";
    print(context.out.fitted(
        done.packed == 0
            ? fmt::format("no pack is written: none of its objects is in the cache{}\n",
                          remedy)
            : fmt::format("{}: {}, {}, serial {}{}{}{}{}\n", options.output,
                          counted(done.packed, "object", "objects"),
                          format_size(done.bytes), done.header.serial,
                          work.toolchains.empty()
                              ? ""
                              : fmt::format(", of {}", work.toolchains.front().name()),
                          done.signed_by.empty()
                              ? ""
                              : fmt::format(", signed by {}",
                                            key_name(done.signed_by.front().key)),
                          missing + failed == 0
                              ? ""
                              : fmt::format("; {} not packed", missing + failed),
                          remedy)));
  }
  return missing + failed + work.bad_lines == 0 ? kAllDone : kSomeFailed;
}

Result<int> run(Context& context, const PackOptions& options) {
  KILN_TRY(check_output(options.output));
  cache::PackHeader header = KILN_TRY(begin_header(options));
  const auto keys = KILN_TRY(trusted_keys(context.config, options.signing.keys));
  const auto signed_by = KILN_TRY(signers(context.config, options.signing, keys.get()));
  KILN_TRY(check_names(options.selection, options.names));
  WantedList work =
      are_requests(options.selection)
          ? KILN_TRY(find_requests(context, options.selection))
          : KILN_TRY(find_entries(context, options.selection, options.names));
  if (work.wanted.empty()) {
    const SelectionOptions& by = options.selection;
    const bool has_filter =
        is_given(options.names) || is_given(by.architectures) || !by.templates.empty();
    std::ignore = report_failure(
        context,
        {ErrorCode::kNotFound,
         fmt::format("no pack is written: {} {}", work.cache().layout().root().native(),
                     has_filter ? "has nothing that matches" : "is empty")});
    return kSomeFailed;  // the command line was right
  }
  for (const device::Toolchain& each : work.toolchains)
    header.toolchains.push_back(fmt::format("{} {}", each.name(), to_string(each.id)));
  std::ranges::sort(work.wanted, {}, &Wanted::key);
  if (header.created_ns == 0)
    header.created_ns = newest_ns(work);
  const auto file = KILN_TRY(PackFile::create(options.output));
  cache::PackWriter writer([&](ByteView bytes) { return file->write(bytes); });
  KILN_TRY(writer.begin(header));
  const std::uint64_t packed =
      KILN_TRY(add_objects(context, work, options.with_source, writer));
  for (const device::Toolchain& each : work.toolchains)
    KILN_TRY(writer.add_toolchain(device::record_of(each)));
  KILN_TRY(writer.finish(signed_by));
  std::uint64_t bytes = 0;
  if (packed > 0)
    bytes =
        KILN_TRY(file->commit(packed, signed_by.empty() ? nullptr : &signed_by.front(),
                              context.stop->token()));
  return report(
      context, options, work,
      {.header = header, .signed_by = signed_by, .packed = packed, .bytes = bytes});
}

}  // namespace

Run add_pack(OptionSet& cli) {
  auto options = std::make_shared<PackOptions>();
  add_selection_options(cli, options->selection);
  add_name_options(cli, options->names);
  cli.group(kOutputGroup);
  cli.option("-o", options->output, "FILE",
             "The pack, NAME.kpack; compressed for transport as NAME.kpack.zst. It is "
             "written whole or not at all");
  cli.option("--serial", options->serial, "N",
             "A number that grows from pack to pack of one name (default: the time, in "
             "ms since 1970, or that of SOURCE_DATE_EPOCH)");
  add_source_option(cli, options->with_source);
  cli.group(kFleetGroup);
  add_signing_options(cli, options->signing, "; FILE.minisig is written as well");
  cli.option("--keys", options->signing.keys, "FILE", "The public key of --signer");
  cli.footer(
      "Without a selection everything is packed. --arch, --template NAME, --name and\n"
      "--file are the filters of `kiln ls`. The other options, and --template "
      "NAME:p=v,\n"
      "select the kernels that `kiln warm` would build; a kernel that the cache lacks "
      "is\n"
      "an error (exit 1).\n"
      "\n"
      "Examples:\n"
      "  kiln pack -o job.kpack --preset llama-3-8b --arch 9.0\n"
      "  kiln pack -o all.kpack.zst --sign signing.key\n");
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
