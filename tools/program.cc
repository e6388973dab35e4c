#include "tools/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <span>

#include "kiln/version.h"

namespace kiln::tools {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  kiln warm --all --arch 8.0,9.0      build every kernel for A100 and H100\n"
    "  kiln ls                             the entries of the cache\n"
    "  kiln why --template scaled_softmax_fwd:dtype=bf16 --arch 9.0\n"
    "                                      why that request would miss\n"
    "  kiln doctor                         a check of this machine\n"
    "\n"
    "`kiln VERB --help` explains a verb. Exit status: 0 done; 1 some items failed;\n"
    "2 wrong usage or input; 3 something is missing here; 130, 143 after SIGINT,\n"
    "SIGTERM. verify: a sum of 1 (corrupt), 8 (untrusted) and 16 (unreadable).\n";

std::span<const Verb> verbs() {
  constexpr const char* kBuild = "Build";
  constexpr const char* kDistribute = "Distribute";
  constexpr const char* kInspect = "Inspect";
  constexpr const char* kLookAfter = "Look after";
  static constexpr std::array kVerbs{
      Verb{"warm", "Build missing kernels, before a job starts", kBuild, add_warm,
           CacheDir::kMakes, Beyond::kSeedsAndRemotes},
      Verb{"compile", "Compile a CUDA C++ file into the cache", kBuild, add_compile,
           CacheDir::kMakes, Beyond::kSeedsAndRemotes},
      Verb{"render", "Print the source that a template renders to", kBuild, add_render,
           CacheDir::kMakes, Beyond::kNothing, nullptr, true},
      Verb{"templates", "List the kernel templates and their parameters", kBuild,
           add_templates, CacheDir::kMakes, Beyond::kNothing, nullptr, true},
      Verb{"run", "Run a program with an NVRTC of Kiln beneath it", kBuild, add_run},
      Verb{"pack", "Write objects of the cache into one file, for other machines",
           kDistribute, add_pack, CacheDir::kExpects, Beyond::kSeeds},
      Verb{"unpack", "Put the objects of a pack into the cache", kDistribute,
           add_unpack},
      Verb{"push", "Send objects of the cache, or a pack, to remote caches",
           kDistribute, add_push, CacheDir::kExpects, Beyond::kRemotes},
      Verb{"pull", "Fetch objects, or a pack, from remote caches into the cache",
           kDistribute, add_pull, CacheDir::kMakes, Beyond::kRemotes},
      Verb{"key", "Make and show the keys that sign packs", kDistribute, add_key},
      Verb{"ls", "List the entries of the cache", kInspect, add_ls, CacheDir::kReports,
           Beyond::kNothing, nullptr, true},
      Verb{"show", "Everything about one entry", kInspect, add_show, CacheDir::kExpects,
           Beyond::kNothing, nullptr, true},
      Verb{"why", "Why two keys differ, or why a request misses", kInspect, add_why,
           CacheDir::kExpects, Beyond::kSeeds, nullptr, true},
      Verb{"stats", "Size of the cache, and its counters", kInspect, add_stats,
           CacheDir::kReports, Beyond::kSeeds, nullptr, true},
      Verb{"ps", "Builds on this machine now, and the processes that wait for them",
           kInspect, add_ps, CacheDir::kExpects, Beyond::kNothing, nullptr, true},
      Verb{"events", "Sums of the events of a job or a fleet", kInspect, add_events},
      Verb{"doctor", "Check this machine: libraries, devices, cache and settings",
           kInspect, add_doctor, CacheDir::kExpects, Beyond::kSeedsAndRemotes, nullptr,
           true, true},
      Verb{"inspect", "Which device code binaries hold, and where it runs", kInspect,
           add_inspect, CacheDir::kMakes, Beyond::kNothing, nullptr, true},
      Verb{"attention",
           "Attention by cuDNN: whether it runs, why not, and its plans beforehand",
           kInspect, add_attention, CacheDir::kMakes, Beyond::kSeedsAndRemotes,
           foreign_attention_options},
      Verb{"bench", "How fast the operations run here, beside a copy or cuDNN",
           kInspect, add_bench, CacheDir::kMakes, Beyond::kSeedsAndRemotes},
      Verb{"verify", "Check every object, byte by byte", kLookAfter, add_verify,
           CacheDir::kReports, Beyond::kNothing, nullptr, true},
      Verb{"trim", "Remove the entries used least recently", kLookAfter, add_trim,
           CacheDir::kReports},
      Verb{"clear", "Remove entries", kLookAfter, add_clear, CacheDir::kExpects},
  };
  return kVerbs;
}

/// For help alone: take_colours() reads it first. `colour` gets nothing.
void add_colour_option(CLI::App& app, std::string& colour) {
  OptionSet(app).option(
      "--color", colour, "WHEN",
      fmt::format("{}; colours in help, tables and messages (default: auto, which asks "
                  "the terminal, NO_COLOR, CLICOLOR_FORCE and FORCE_COLOR)",
                  fmt::join(words_of<Colours>(), ", ")));
}

void add_beyond(OptionSet& cli, Beyond beyond) {
  if (beyond == Beyond::kSeeds || beyond == Beyond::kSeedsAndRemotes)
    cli.setting("--seed", "PATHS", "seeds");
  if (beyond != Beyond::kRemotes && beyond != Beyond::kSeedsAndRemotes)
    return;
  cli.setting("--remote", "URLS", "remote",
              "Remote caches, with spaces, in the order in which they are asked; each "
              "may have options: https://c/kiln;mode=rw;unsigned=1, layout=bazel, "
              "region=us-east-1");
  cli.setting("--remote-mode", "off|r|rw", "remote_mode");
  cli.setting("--keys", "FILE", "remote_keys");
  cli.setting("--auth", "FILE", "remote_auth");
}

}  // namespace

std::unique_ptr<Program> make_program() {
  auto made = std::make_unique<Program>();
  Program& program = *made;
  program.app.formatter(help_formatter());
  program.app.set_version_flag("--version", fmt::format("kiln {}", version()),
                               "Print the version and exit");
  program.app.set_help_flag("--help,-h", "Print this help and exit");
  add_colour_option(program.app, program.colour);
  for (const Verb& verb : verbs()) {
    CLI::App* app = program.app.add_subcommand(verb.name, verb.summary);
    app->group(verb.group);
    auto common = std::make_shared<CommonFlags>();
    OptionSet cli(*app);
    cli.group(kSelectionGroup);
    Run run = verb.add(cli);
    cli.group(kOutputGroup);
    cli.flag("--json", common->json, "Print one JSON document on stdout");
    cli.flag("-q,--quiet", common->quiet,
             "No progress and no notes on stderr, only warnings and errors");
    cli.flag("-v,--verbose", common->verbose,
             "Log each build and wait on stderr, and a summary, as KILN_LOG=info "
             "does, unless KILN_LOG is set");
    add_colour_option(*app, program.colour);
    app->set_help_flag("--help,-h", "Print this help and exit");
    cli.group(kFleetGroup);
    cli.setting("--cache-dir", "DIR", "cache_dir");
    add_beyond(cli, verb.beyond);
    program.verbs.push_back({&verb, app, cli, std::move(run), std::move(common)});
  }
  program.app.footer(kFooter);  // last: verbs inherit what is there when they are added
  return made;
}

bool takes_value(const CLI::Option& option) {
  return !option.get_positional() && option.get_type_size_max() > 0 &&
         option.get_items_expected_max() > 0;
}

std::string first_name(const CLI::Option& option) {
  if (option.get_positional())
    return option.get_name(true);
  return option.get_lnames().empty() ? "-" + option.get_snames().front()
                                     : "--" + option.get_lnames().front();
}

}  // namespace kiln::tools
