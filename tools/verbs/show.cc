// kiln show KEY: everything about one entry.

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "attention/plan.h"
#include "build/entry_label.h"
#include "build/stored_source.h"
#include "codec/named_files.h"
#include "files/private_folder.h"
#include "key/key.h"
#include "tools/open_cache.h"
#include "tools/output/entries.h"
#include "tools/output/file_output.h"
#include "tools/verbs.h"
#include "util/posix_error.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

using nlohmann::ordered_json;

struct ShowOptions {
  std::string key;
  bool source = false;
  bool log = false;
  bool preimage = false;
  bool ptx = false;
  std::string extract;
};

struct Shown {
  cache::Entry entry;
  cache::StoredObject object;
  std::string path;
  std::optional<attention::Plan> plan = {};  // only for a plan

  /// What --extract writes: the payload in a form that other programs know.
  [[nodiscard]] ByteView raw() const {
    return plan ? as_bytes(plan->json) : object.payload();
  }
};

Result<Shown> find(const Config& config, const std::string& text) {
  const auto cache = KILN_TRY(open_cache(config));
  const Digest key = KILN_TRY(cache->resolve(text));
  auto object = KILN_TRY(cache->inspect(key));
  auto entry = KILN_TRY(cache->describe(key));
  if (!entry || !object)
    return fail(ErrorCode::kNotFound, key.hex() + " has just been removed");
  cache->add_signers(std::span(&*entry, 1));
  Shown shown{*std::move(entry), *std::move(object), cache->layout().object(key)};
  if (shown.object.kind() == cache::Kind::kPlan)
    shown.plan = KILN_TRY(attention::decode_plan(shown.raw()));
  return shown;
}

/// The text that one of --source, --log, --preimage or --ptx asks for.
Result<std::optional<std::string>> wanted_text(const cache::StoredObject& object,
                                               const ShowOptions& options) {
  if (options.source)
    return KILN_TRY(source_of(object));
  if (options.log)
    return KILN_TRY(object.log());
  if (options.ptx) {
    return object.kind() == cache::Kind::kPtx ? std::string(as_text(object.payload()))
                                              : KILN_TRY(object.ptx());
  }
  if (options.preimage)
    return format_preimage(KILN_TRY(object.preimage()));
  return std::nullopt;
}

/// The details of a plan, which is not loaded as an image is.
ordered_json plan_json(const attention::Plan& plan) {
  ordered_json bound;
  for (const attention::BoundProperty& property : plan.bound)
    bound[property.name] = property.values.size() == 1
                               ? ordered_json(property.values.front())
                               : ordered_json(property.values);
  ordered_json tensors = ordered_json::array();
  for (const attention::TensorRole role : plan.tensors)
    tensors.push_back(to_string(role));
  return {{"engine", plan.engine},
          {"workspace_bytes", plan.workspace_bytes()},
          {"tensors", tensors},
          {"bound_to", bound}};
}

/// Names, sizes and what is source, of an object of files.
ordered_json files_json(const cache::StoredObject& object) {
  ordered_json list = ordered_json::array();
  const auto add = [&](ByteView encoded, bool is_source) {
    // The payload was checked when it was read.
    for (const NamedFile& file :
         decode_files(encoded).value_or(std::vector<NamedFile>()))
      list.push_back(
          {{"name", file.name}, {"bytes", file.bytes.size()}, {"source", is_source}});
  };
  add(object.payload(), false);
  add(as_bytes(object.source().value_or("")), true);
  return list;
}

Result<void> extract_files(const cache::StoredObject& object, const std::string& path) {
  constexpr files::FileModes kModes{.file = 0644, .program = 0755};
  std::error_code error;
  const bool is_new = std::filesystem::create_directory(path, error);
  if (error)
    return posix_error("mkdir", path, error.value());
  const auto written = files::write_files(object, path, kModes);
  if (written)
    return {};
  if (is_new)
    files::remove_whole(path);
  return tl::unexpected(written.error());
}

/// Before it writes anything it checks that it can.
Result<void> extract(const Shown& shown, const std::string& path) {
  constexpr std::string_view kOption = "--extract";
  if (shown.object.kind() != cache::Kind::kFiles) {
    KILN_TRY(check_output_path(kOption, path));
    return write_output_file(path, shown.raw());
  }
  if (path == "-")
    return refuse("--extract -: this entry is files, which go to a folder");
  KILN_TRY(check_output_folder(kOption, path));
  return extract_files(shown.object, path);
}

ordered_json show_json(const Shown& shown, const cache::Metadata& metadata,
                       const Fields& preimage) {
  // The entry has the rest of the metadata; `preimage` has the build ids.
  const auto& [template_name, params, arch, toolchain, toolchain_build_ids, producer,
               created_ns, compile_ms, registers, shared_bytes, spill_bytes,
               entry_points, variables, min_driver, program, program_in] = metadata;
  ordered_json json = entry_json(shown.entry);
  json["path"] = shown.path;
  if (!variables.empty())
    json["variables"] = names_json(variables);
  if (shown.plan)
    json["plan"] = plan_json(*shown.plan);
  if (shown.object.kind() == cache::Kind::kFiles)
    json["files"] = files_json(shown.object);
  json["min_driver"] = min_driver;
  json["producer"] = producer;
  json["preimage"] = preimage_json(preimage);
  return json;
}

void print_details(const Shown& shown, const cache::Metadata& metadata,
                   const Terminal& terminal) {
  const cache::Entry& entry = shown.entry;
  const ordered_json json = entry_json(entry);
  print(fmt::format(
      "{}\n", terminal.styled(printable_lines(entry_label(entry)), Style::kBold)));
  const auto line = [](std::string_view name, std::string_view value) {
    print(fmt::format("  {:<13} {}\n", name, value));
  };
  line("key", entry.key.hex());
  line("path", shown.path);
  line("kind", fmt::format("{} for {}", to_string(entry.kind), entry.arch));
  line("size", fmt::format("{} ({} bytes), image {}", format_size(entry.size_bytes),
                           entry.size_bytes, format_size(shown.raw().size())));
  line("created", json["created"].get<std::string>());
  line("last used", json["last_used"].get<std::string>());
  line("toolchain", entry.toolchain);
  for (const cache::SignedBy& each : entry.signed_by)
    line("signed by", fmt::format("{}, from {}", key_name(each.key), each.source));
  line("built in", format_duration(std::chrono::milliseconds(entry.compile_ms)));
  if (shown.plan) {
    const ordered_json plan = plan_json(*shown.plan);
    line("engine", shown.plan->engine);
    line("workspace", format_size(shown.plan->workspace_bytes()));
    line("tensors", plan["tensors"].dump());
    line("bound to", plan["bound_to"].dump());
  } else if (shown.object.kind() == cache::Kind::kFiles) {
    for (const ordered_json& file : files_json(shown.object))
      line(file["source"].get<bool>() ? "source" : "file",
           fmt::format("{} ({} bytes)", file["name"].get<std::string>(),
                       file["bytes"].get<std::uint64_t>()));
  } else {
    line("driver", "CUDA " + metadata.min_driver + " or later");
    line("resources",
         fmt::format("{} registers, {} bytes shared, {} bytes spilled", entry.registers,
                     entry.shared_bytes, entry.spill_bytes));
  }
  const auto line_of = [&](std::string_view what, const cache::EntryPoint& each) {
    line(what, each.name == each.lowered
                   ? each.name
                   : fmt::format("{}  ({})", each.name, each.lowered));
  };
  for (const cache::EntryPoint& each : metadata.entry_points)
    line_of("entry point", each);
  for (const cache::EntryPoint& each : metadata.variables) line_of("variable", each);
}

/// Of a text that is asked for and is empty.
std::string why_empty(const Shown& shown, const Fields& preimage,
                      const ShowOptions& options) {
  constexpr std::size_t kShortKey = 12;
  const std::string_view word = options.source ? "source" : options.log ? "log" : "ptx";
  const cache::Kind kind = shown.object.kind();
  if (kind == cache::Kind::kFiles)
    return fmt::format("the entry has files, and no {}", word);
  if (const auto object = preimage.find("link/object"))
    return fmt::format(
        "the entry is a link, and has no {}: `kiln show {} --{}` has that "
        "of its first object",
        word, object->substr(0, kShortKey), word);
  if (options.source)
    return "the source of this entry is not stored here";
  return options.log ? "the log is empty"
                     : fmt::format("the entry is of the kind {}, and has no ptx",
                                   to_string(kind));
}

Result<int> run(Context& context, const ShowOptions& options) {
  if (options.source + options.log + options.preimage + options.ptx > 1) {
    return refuse(
        "--source, --log, --preimage and --ptx print one text each: ask for one");
  }
  if (options.extract == "-" && context.json) {
    return refuse("--extract - and --json both want standard output");
  }
  const Shown shown = KILN_TRY(find(context.config, options.key));
  const auto text = KILN_TRY(wanted_text(shown.object, options));
  if (!options.extract.empty())
    KILN_TRY(extract(shown, options.extract));
  const cache::Metadata metadata = KILN_TRY(shown.object.metadata());
  const Fields preimage = KILN_TRY(shown.object.preimage());
  if (context.json) {
    ordered_json json = show_json(shown, metadata, preimage);
    if (text)
      json[options.source ? "source"
           : options.log  ? "log"
           : options.ptx  ? "ptx"
                          : "text"] = *text;
    print_json(json);
  } else if (text) {
    print(*text);
    if (text->empty())
      print_error(why_empty(shown, preimage, options) + "\n");
  } else if (options.extract.empty()) {
    print_details(shown, metadata, context.out);
  }
  return 0;
}

}  // namespace

Run add_show(OptionSet& cli) {
  auto options = std::make_shared<ShowOptions>();
  cli.argument("KEY", options->key, "64 hex digits, or a unique prefix of 6 or more",
               Presence::kRequired);
  cli.group(kOutputGroup);
  cli.flag("--source", options->source,
           "Print the source of the entry; of a plan its problem");
  cli.flag("--log", options->log, "Print the compiler's log");
  cli.flag("--preimage", options->preimage, "Print the fields that the key is made of");
  cli.flag("--ptx", options->ptx, "Print the PTX");
  cli.option(
      "--extract", options->extract, "PATH",
      "Write the raw cubin, PTX or plan to the file PATH (- is standard output), "
      "or files of other programs to the new or empty folder PATH");
  cli.footer(
      "Examples:\n"
      "  kiln show 3f9c21                          its registers, size and entry "
      "points\n"
      "  kiln show 3f9c21 --log                    the compiler's messages\n"
      "  kiln show 3f9c21 --extract scale.cubin    for cuobjdump or Nsight\n");
  return [options](Context& context) {
    return finish_lookup(context, run(context, *options));
  };
}

}  // namespace kiln::tools
