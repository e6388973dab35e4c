// --arch, --template, --kind and --older-than as a query: the filters of ls and clear.

#pragma once

#include <string>
#include <vector>

#include "build/config.h"
#include "cache/entry.h"
#include "kiln/result.h"
#include "tools/catalog.h"
#include "tools/option_set.h"

namespace kiln::tools {

struct EntryFilterOptions {
  std::vector<std::string> architectures;
  std::vector<std::string> templates;
  std::string older_than;
  std::vector<std::string> kinds{};
};

/// Declares --arch, --template and --kind. Filters combine with AND, values of one with
/// OR.
void add_filter_options(OptionSet& cli, EntryFilterOptions& options);
/// Declares --older-than.
void add_age_option(OptionSet& cli, EntryFilterOptions& options);

[[nodiscard]] inline bool is_given(const EntryFilterOptions& options) {
  return !options.architectures.empty() || !options.templates.empty() ||
         !options.older_than.empty() || !options.kinds.empty();
}

/// --template may name a kernel, a family, or a kernel that is no longer in any
/// template folder. Errors: kInvalidArgument.
[[nodiscard]] Result<cache::ListQuery> make_query(const Config& config,
                                                  const EntryFilterOptions& options);

/// For a filter that selected nothing: checks that every --template name exists.
/// Errors: kInvalidArgument, with the nearest match.
[[nodiscard]] Result<void> check_templates(const Config& config,
                                           const EntryFilterOptions& options);

}  // namespace kiln::tools
