#include "tools/program.h"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "kiln/version.h"

namespace kiln::tools {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  kiln warm --all --arch 8.0,9.0      build every kernel for A100 and H100\n"
    "  kiln ls                             what the cache holds\n"
    "  kiln why --template scaled_softmax_fwd:dtype=bf16 --arch 9.0\n"
    "                                      why that request would miss\n"
    "  kiln doctor                         what is found here, and what is wrong\n"
    "\n"
    "`kiln VERB --help` explains a verb. Exit status: 0 done; 1 some items failed;\n"
    "2 wrong usage; 3 something is missing here; 130, 143 after SIGINT, SIGTERM.\n";

}  // namespace

std::unique_ptr<Program> make_program() {
  auto made = std::make_unique<Program>();
  Program& program = *made;
  program.app.set_version_flag("--version", fmt::format("kiln {}", version()));
  program.app.set_help_flag("--help,-h", "Print this help and exit");
  program.app.get_formatter()->column_width(kHelpColumn);
  program.app.get_formatter()->label("REQUIRED", "");
  for (const Verb& verb : verbs()) {
    CLI::App* app = program.app.add_subcommand(verb.name, verb.summary);
    app->group(verb.group);
    auto common = std::make_shared<CommonOptions>();
    OptionSet cli(*app);
    Run run = verb.add(cli);
    cli.option("--cache-dir", common->cache_dir, "DIR",
               "The cache's root (default: $KILN_CACHE_DIR, then "
               "$XDG_CACHE_HOME/kiln, then ~/.cache/kiln)");
    cli.flag("--json", common->json, "Print one JSON document on stdout");
    app->set_help_flag("--help,-h", "Print this help and exit");
    program.verbs.push_back({&verb, app, std::move(run), std::move(common)});
  }
  program.app.footer(kFooter);  // last: verbs inherit what is there when they are added
  return made;
}

bool takes_value(const CLI::Option& option) {
  return !option.get_positional() && option.get_type_size_max() > 0 &&
         option.get_items_expected_max() > 0;
}

}  // namespace kiln::tools
