// The template catalog as the command line opens it, and the options for it.

#pragma once

#include <filesystem>
#include <vector>

#include "build/config.h"
#include "render/catalog.h"
#include "tools/option_set.h"

namespace kiln::tools {

struct CatalogOptions {
  std::vector<std::string> template_dirs;
};

/// Declares --template-dir.
void add_catalog_options(OptionSet& cli, CatalogOptions& options);

/// Folders of the command line, then of KILN_TEMPLATE_DIR.
[[nodiscard]] std::vector<std::filesystem::path> template_folders(
    const Config& config, const CatalogOptions& options);

/// Errors: as TemplateCatalog::open.
[[nodiscard]] Result<render::TemplateCatalog> open_catalog(
    const Config& config, const CatalogOptions& options);

}  // namespace kiln::tools
