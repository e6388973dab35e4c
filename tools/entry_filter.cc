#include "tools/entry_filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include "cache/unix_time.h"
#include "device/architecture.h"
#include "tools/architectures.h"
#include "tools/catalog.h"
#include "tools/output/standard_streams.h"
#include "tools/signing.h"
#include "util/try.h"
#include "util/units.h"
#include "util/words.h"

namespace kiln::tools {
namespace {

/// An entry for a device that is present has that device's architecture or, if its
/// template asks for it, the same with a suffix.
Result<void> add_devices(const Config& config, std::vector<std::string>& archs) {
  const auto devices = KILN_TRY(devices_present(config));
  if (devices.empty()) {
    return refuse(
        "no NVIDIA device is present here, so name the architectures: --arch 9.0");
  }
  for (const device::ComputeCapability capability : devices) {
    for (const device::ArchSuffix suffix :
         {device::ArchSuffix::kNone, device::ArchSuffix::kA, device::ArchSuffix::kF})
      archs.push_back(to_string(device::Architecture{capability, suffix}));
  }
  return {};
}

Result<cache::Kind> parse_kind(const std::string& text) {
  constexpr auto kWords = [] {
    std::array<std::string_view, cache::kKindCount> words;
    for (std::size_t i = 0; i < words.size(); ++i)
      words.at(i) = to_string(static_cast<cache::Kind>(i + 1));
    return words;
  };
  const std::size_t at = KILN_TRY(about("--kind", position_of(text, kWords())));
  return static_cast<cache::Kind>(at + 1);
}

}  // namespace

void add_name_options(OptionSet& cli, EntryNames& options) {
  cli.option(
      "--name", options.names, "PATTERN",
      "Entries with a kernel of this name, as k or 'ns::k<float>', or files of this "
      "name; 'k*' is a pattern; may be repeated");
  cli.option("--file", options.files, "PATTERN",
             "Entries of the source with this file name, as scale.cu or '*.cu'; may be "
             "repeated");
}

void add_filter_options(OptionSet& cli, EntryFilterOptions& options) {
  cli.option("--arch", options.architectures, "LIST",
             "Entries built for these architectures: 9.0, 9.0a, sm_90, compute_90 or "
             "native, with commas");
  cli.option("--template", options.templates, "NAME",
             "Entries of this kernel or family; may be repeated");
  add_name_options(cli, options.names);
  cli.option("--kind", options.kinds, "WORD",
             "cubin, ptx, plan, ltoir, files; entries of this kind; may be repeated");
  cli.option(
      "--signer", options.signers, "KEYID",
      "Entries that came with a signature by this key, 16 hex digits as of `kiln "
      "key show`; may be repeated");
}

void note_no_match(const cache::Cache& cache) {
  if (!cache.is_absent())
    print_note(
        fmt::format("{} has nothing that matches\n", cache.layout().root().native()));
}

Result<void> check_templates(const Config& config, const EntryFilterOptions& options) {
  if (options.templates.empty())
    return {};
  const auto catalog = KILN_TRY(open_catalog(config, {}));
  for (const std::string& name : options.templates) {
    if (!catalog.names_in(name).empty())
      continue;
    // Not kNotFound: a verb that looks up keys would report it as an unknown key.
    if (auto kernel = catalog.find(name); !kernel)
      return refuse(kernel.error().message);
  }
  return {};
}

Result<cache::ListQuery> make_query(const Config& config,
                                    const EntryFilterOptions& options) {
  cache::ListQuery query;
  for (const std::string& text : options.architectures) {
    const auto list = KILN_TRY(device::parse_target_list(text));
    if (list.native)
      KILN_TRY(add_devices(config, query.archs));
    for (const device::Target target : list.targets)
      query.archs.push_back(arch_name(target));
  }
  if (!options.templates.empty()) {
    const auto catalog = KILN_TRY(open_catalog(config, {}));
    for (const std::string& name : options.templates) {
      query.templates.push_back(name);
      // A family's name also selects all its kernels.
      std::ranges::move(catalog.names_in(name), std::back_inserter(query.templates));
    }
  }
  query.names = options.names.names;
  query.files = options.names.files;
  for (const std::string& text : options.kinds)
    query.kinds.push_back(KILN_TRY(parse_kind(text)));
  for (const std::string& name : options.signers)
    query.signers.push_back(KILN_TRY(about("--signer", parse_key_name(name))));
  if (!options.keys.empty())
    query.distrusted_by = KILN_TRY(trusted_keys(config, options.keys));
  if (!options.older_than.empty()) {
    const auto age = KILN_TRY(parse_age(options.older_than));
    query.unused_since_ns =
        cache::unix_now_ns() -
        std::chrono::duration_cast<std::chrono::nanoseconds>(age).count();
  }
  return query;
}

}  // namespace kiln::tools
