// What --all, --quick, --template, --manifest and --preset select: the words by which
// `warm` builds, and `pack` packs.

#pragma once

#include <string>
#include <vector>

#include "build/build_service.h"
#include "cudnn/plan_service.h"
#include "kiln/result.h"
#include "tools/architectures.h"
#include "tools/build_run.h"
#include "tools/catalog.h"
#include "tools/context.h"
#include "tools/option_set.h"

namespace kiln::tools {

struct SelectionOptions {
  bool all = false;
  bool quick = false;
  std::vector<std::string> templates;
  std::vector<std::string> manifests;
  bool skip_bad = false;
  std::vector<std::string> presets;
  bool no_attention = false;
  ArchitectureOptions architectures;
  std::string driver;
  CatalogOptions catalog;
};

/// Declares them, with --arch, --profile, --driver and --template-dir.
void add_selection_options(OptionSet& cli, SelectionOptions& options);

/// Every kernel and plan that is selected, with its key. Errors: kInvalidArgument, for
/// wrong words, and where nothing is selected; those of select_architectures().
[[nodiscard]] Result<BuildReport> list_items(const Context& context,
                                             BuildService& service, PlanService& plans,
                                             const SelectionOptions& options);

}  // namespace kiln::tools
