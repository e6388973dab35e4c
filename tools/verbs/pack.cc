// kiln pack: objects of the cache as one file, for other machines.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "build/build_options.h"
#include "kiln/version.h"
#include "toolchain/toolchain_files.h"
#include "tools/entry_filter.h"
#include "tools/exit_code.h"
#include "tools/open_cache.h"
#include "tools/output/entries.h"
#include "tools/output/file_output.h"
#include "tools/output/progress.h"
#include "tools/pack_file.h"
#include "tools/selection.h"
#include "tools/signing.h"
#include "tools/verbs.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

using nlohmann::ordered_json;

struct PackOptions {
  std::string output;
  SelectionOptions selection;
  SigningOptions signing;
};

/// An object to pack, or why there is none.
struct Wanted {
  Digest key;
  std::string label;
  std::string arch;
  std::optional<Error> error{};
};

/// What is to be packed, from the cache that stays open meanwhile.
struct Work {
  std::unique_ptr<BuildService> service;  // of requests
  std::unique_ptr<cache::Cache> opened;   // of filters
  std::vector<Wanted> wanted;
  std::optional<device::Toolchain> toolchain;
  std::uint64_t bad_lines = 0;  // of manifests, left out

  [[nodiscard]] cache::Cache& cache() const {
    return service != nullptr ? service->cache() : *opened;
  }
};

/// True if the words are those of `warm`, and not the filters of `ls`.
bool are_requests(const SelectionOptions& selection) {
  return selection.all || selection.quick || !selection.manifests.empty() ||
         !selection.presets.empty() || !selection.architectures.profiles.empty() ||
         !selection.driver.empty() || selection.skip_bad ||
         std::ranges::any_of(selection.templates, [](const std::string& text) {
           return text.find(':') != std::string::npos;
         });
}

Result<Work> find_requests(Context& context, const SelectionOptions& selection) {
  Config config = context.config;
  config.template_dirs = template_folders(config, selection.catalog);
  config.for_driver = KILN_TRY(parse_driver_option(selection.driver));
  Work work;
  work.service = KILN_TRY(open_to_look(context, config));
  PlanService plans(*work.service);
  const BuildReport report =
      KILN_TRY(list_items(context, *work.service, plans, selection));
  work.bad_lines = report.bad_lines.value_or(0);
  std::set<Digest> seen;
  std::map<std::string, std::pair<std::size_t, device::Toolchain>> toolchains;
  for (const BuildItem& item : report.items) {
    const auto* const error = std::get_if<Error>(&item.keyed);
    const Digest key = error != nullptr ? Digest() : *key_of(item);
    if (error == nullptr && !seen.insert(key).second)
      continue;
    work.wanted.push_back({key, item.label, item.arch, {}});
    if (error != nullptr)
      work.wanted.back().error = *error;
    if (const auto* keyed = std::get_if<KeyedRequest>(&item.keyed)) {
      const device::Toolchain& used = keyed->toolchain->toolchain;
      auto& count = toolchains.try_emplace(to_string(used.id), 0, used).first->second;
      ++count.first;
    }
  }
  const auto most = std::ranges::max_element(
      toolchains, {}, [](const auto& each) { return each.second.first; });
  if (most != toolchains.end())
    work.toolchain = most->second.second;
  return work;
}

Result<Work> find_entries(const Context& context, const SelectionOptions& selection) {
  Work work;
  work.opened = KILN_TRY(open_named_cache(context.config));
  const EntryFilterOptions filter{selection.architectures.lists, selection.templates,
                                  ""};
  const auto entries = KILN_TRY(work.cache().walk(
      KILN_TRY(make_query(context.config, filter)), cache::Damaged::kInclude));
  if (entries.empty())
    KILN_TRY(check_templates(context.config, filter));
  for (const cache::Entry& entry : entries)
    work.wanted.push_back({entry.key, entry_label(entry), entry.arch, {}});
  const OwnFolder folder =
      kiln::counted(work.cache(), work.cache().layout().toolchains());
  if (auto recorded = device::read_recorded(folder))
    work.toolchain = *std::move(recorded);
  return work;
}

/// Adds what is there and sound to the pack; the others get their error.
Result<std::uint64_t> add_objects(Context& context, Work& work,
                                  cache::PackWriter& writer) {
  std::uint64_t packed = 0;
  Progress progress(context.err, work.wanted.size());
  for (Wanted& each : work.wanted) {
    if (context.stop->token().stop_requested())
      return fail(ErrorCode::kCancelled, "stopped; no pack was written");
    if (each.error)
      continue;
    progress.start(each.label);
    auto object = work.cache().inspect(each.key);
    progress.finish(each.label, std::nullopt);
    if (!object) {
      each.error = object.error();
    } else if (!*object) {
      each.error = Error{ErrorCode::kNotFound, "it is not in the cache"};
    } else if (const auto verified = (*object)->verify_fully(); !verified) {
      each.error = Error{ErrorCode::kCorrupt, verified.error().detail};
    } else {
      KILN_TRY(writer.add(**object));
      ++packed;
    }
  }
  return packed;
}

Result<void> check_output(const std::string& path) {
  if (path.empty() || path == "-")
    return fail(ErrorCode::kInvalidArgument, "pack: name the file to write: -o FILE");
  KILN_TRY(check_output_path("-o", path));
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("-o {}: that is no regular file", path));
  return {};
}

Result<int> run(Context& context, const PackOptions& options) {
  KILN_TRY(check_output(options.output));
  const auto keys = KILN_TRY(trusted_keys(context.config, options.signing));
  const auto signed_by = KILN_TRY(signers(context.config, options.signing, keys));
  Work work = are_requests(options.selection)
                  ? KILN_TRY(find_requests(context, options.selection))
                  : KILN_TRY(find_entries(context, options.selection));
  if (work.wanted.empty()) {
    std::ignore = report_failure(
        context, {ErrorCode::kNotFound,
                  fmt::format("no pack is written: {} has nothing that is wanted",
                              work.cache().layout().root().native())});
    return kSomeFailed;  // the command line was right
  }
  std::ranges::sort(work.wanted, {}, &Wanted::key);
  const auto file = KILN_TRY(PackFile::create(options.output));
  cache::PackWriter writer([&](ByteView bytes) { return file->write(bytes); });
  KILN_TRY(writer.begin(fmt::format("kiln {}", version())));
  const std::uint64_t packed = KILN_TRY(add_objects(context, work, writer));
  if (work.toolchain)
    KILN_TRY(writer.add_toolchain(device::record_of(*work.toolchain)));
  KILN_TRY(writer.finish(signed_by));
  std::uint64_t bytes = 0;
  if (packed > 0)
    bytes = KILN_TRY(file->commit(signed_by.empty() ? nullptr : &signed_by.front()));
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
    ordered_json by = ordered_json::array();
    for (const Signer& signer : signed_by) by.push_back(key_name(signer.key));
    ordered_json document{
        {"file", options.output},
        {"objects", packed},
        {"bytes", bytes},
        {"missing", missing},
        {"failed", failed},
        {"toolchain",
         work.toolchain ? ordered_json(work.toolchain->name()) : ordered_json(nullptr)},
        {"signed_by", by},
        {"problems", problems}};
    if (options.selection.skip_bad)
      document["bad_lines"] = work.bad_lines;
    print_json(document);
  } else {
    const std::string_view remedy =
        missing == 0 ? "" : "; `kiln warm` with the same words builds what is missing";
    print(context.out.fitted(
        packed == 0
            ? fmt::format("no pack is written: nothing of it is in the cache{}\n",
                          remedy)
            : fmt::format(
                  "{}: {}, {}{}{}{}{}\n", options.output,
                  counted(packed, "object", "objects"), format_size(bytes),
                  work.toolchain ? fmt::format(", of {}", work.toolchain->name()) : "",
                  signed_by.empty()
                      ? ""
                      : fmt::format(", signed by {}", key_name(signed_by.front().key)),
                  missing + failed == 0
                      ? ""
                      : fmt::format("; {} not packed", missing + failed),
                  remedy)));
  }
  return missing + failed + work.bad_lines == 0 ? kAllDone : kSomeFailed;
}

}  // namespace

Run add_pack(OptionSet& cli) {
  auto options = std::make_shared<PackOptions>();
  cli.option("-o", options->output, "FILE",
             "The pack, NAME.kpack; compressed for transport as NAME.kpack.zst. It is "
             "written whole or not at all");
  add_selection_options(cli, options->selection);
  add_signing_options(cli, options->signing);
  add_keys_option(cli, options->signing, "The public key of --signer");
  cli.footer(
      "Without a selection everything is packed. --arch and --template alone are the\n"
      "filters of `kiln ls`; the other words, and --template NAME:p=v, select what\n"
      "`kiln warm` would build, and what of it the cache lacks is an error (exit 1).\n"
      "\n"
      "Examples:\n"
      "  kiln pack -o job.kpack --preset llama-3-8b --arch 9.0\n"
      "  kiln pack -o all.kpack.zst --sign signing.key\n");
  return
      [options](Context& context) { return finish(context, run(context, *options)); };
}

}  // namespace kiln::tools
