#include "tools/catalog.h"

#include "build/dead_mounts.h"
#include "render/embedded_templates.h"
#include "tools/context.h"
#include "util/try.h"

namespace kiln::tools {

void add_catalog_options(OptionSet& cli, CatalogOptions& options) {
  cli.option("--template-dir", options.template_dirs, "DIR",
             "Folder with kernel templates, searched before $KILN_TEMPLATE_DIR and the "
             "built-in templates; may be repeated");
}

std::vector<std::filesystem::path> template_folders(const Config& config,
                                                    const CatalogOptions& options) {
  std::vector<std::filesystem::path> folders(options.template_dirs.begin(),
                                             options.template_dirs.end());
  folders.insert(folders.end(), config.template_dirs.begin(),
                 config.template_dirs.end());
  return folders;
}

Result<render::TemplateCatalog> open_catalog(const Config& config,
                                             const CatalogOptions& options) {
  for (const std::string& folder : options.template_dirs)
    KILN_TRY(check_mount(config, "--template-dir", folder));
  for (const std::filesystem::path& folder : config.template_dirs)
    KILN_TRY(check_mount(config, "KILN_TEMPLATE_DIR", folder));
  return from_input(render::TemplateCatalog::open(templates::embedded(),
                                                  template_folders(config, options)));
}

}  // namespace kiln::tools
