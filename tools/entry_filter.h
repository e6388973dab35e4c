// --arch, --template, --name, --file, --kind, --signer, --keys and --older-than as a
// query: the filters of ls, clear and verify.

#pragma once

#include <string>
#include <vector>

#include "build/config.h"
#include "cache/cache.h"
#include "cache/entry.h"
#include "kiln/result.h"
#include "tools/option_set.h"

namespace kiln::tools {

/// Patterns: --name and --file.
struct EntryNames {
  std::vector<std::string> names;
  std::vector<std::string> files;
};

struct EntryFilterOptions {
  std::vector<std::string> architectures;
  std::vector<std::string> templates;
  std::string older_than;
  std::vector<std::string> kinds{};
  EntryNames names{};
  std::vector<std::string> signers{};  // names of keys
  std::string keys{};                  // a file: what they do not trust
};

/// Declares --name and --file.
void add_name_options(OptionSet& cli, EntryNames& options);
/// Declares --arch, --template, --name, --file, --kind and --signer. Filters combine
/// with AND, values of one with OR.
void add_filter_options(OptionSet& cli, EntryFilterOptions& options);

[[nodiscard]] inline bool is_given(const EntryNames& options) {
  return !options.names.empty() || !options.files.empty();
}

[[nodiscard]] inline bool is_given(const EntryFilterOptions& options) {
  return !options.architectures.empty() || !options.templates.empty() ||
         !options.older_than.empty() || !options.kinds.empty() ||
         !options.signers.empty() || !options.keys.empty() || is_given(options.names);
}

/// --template may name a kernel, a family, or a kernel that is no longer in any
/// template folder. Errors: kInvalidArgument; those of trusted_keys().
[[nodiscard]] Result<cache::ListQuery> make_query(const Config& config,
                                                  const EntryFilterOptions& options);

/// Notes on standard error that the filters selected nothing, unless there is no cache,
/// which open_named_cache() says.
void note_no_match(const cache::Cache& cache);

/// For a filter that selected nothing: checks that every --template name exists.
/// Errors: kInvalidArgument, with the nearest match.
[[nodiscard]] Result<void> check_templates(const Config& config,
                                           const EntryFilterOptions& options);

}  // namespace kiln::tools
