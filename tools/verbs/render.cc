// kiln render NAME:p=v,...: the source as the compiler would get it.

#include <memory>
#include <nlohmann/json.hpp>

#include "request/selection.h"
#include "tools/catalog.h"
#include "tools/verbs.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

struct RenderOptions {
  std::string text;
  CatalogOptions catalog;
};

Result<int> run(Context& context, const RenderOptions& options) {
  const auto catalog = KILN_TRY(open_catalog(context.config, options.catalog));
  const auto text = KILN_TRY(request::parse_template_pattern(options.text));
  const auto kernel = KILN_TRY(catalog.find(text.name));
  const auto params = KILN_TRY(kernel->canonical(text.params));
  const auto source = KILN_TRY(kernel->render(params));
  if (context.json) {
    print_json({{"template", kernel->name()},
                {"params", params.values()},
                {"source", source.text}});
  } else {
    print(source.text);
  }
  return 0;
}

}  // namespace

Run add_render(OptionSet& cli) {
  auto options = std::make_shared<RenderOptions>();
  cli.argument("TEMPLATE", options->text,
               "NAME:p=v,... - a kernel and its parameters, e.g. "
               "scaled_softmax_fwd:dtype=bf16; a parameter left out has its default",
               Presence::kRequired);
  add_catalog_options(cli, options->catalog);
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
