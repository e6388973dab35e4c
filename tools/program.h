// The program as CLI11 sees it: every verb with its options. The command line is parsed
// with it, and the man page and the completion are written from it.

#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/verbs.h"

namespace kiln::tools {

/// What a verb does where --cache-dir names no folder.
enum class CacheDir : std::uint8_t { kMakes, kExpects, kReports };

/// Where a verb looks besides the cache, and so has --seed, and --remote with what
/// belongs to it.
enum class Beyond : std::uint8_t { kNothing, kSeeds, kRemotes, kSeedsAndRemotes };

/// One verb of the program. `add` declares its options and returns its Run,
/// which may refer to them through shared ownership.
struct Verb {
  const char* name;
  const char* summary;
  const char* group;
  Run (*add)(OptionSet& cli);
  /// kMakes: a name without a folder is a place for a cache. kExpects: the verb works
  /// on a cache that is there, so that such a name is a mistake, and not an empty cache
  /// in which all is well. kReports: the verb says so itself, of a folder that is no
  /// cache, too.
  CacheDir cache_dir = CacheDir::kMakes;
  Beyond beyond = Beyond::kNothing;
  /// The options that help leaves out where the command line has these words; may be
  /// null.
  std::vector<std::string> (*foreign_options)(const std::vector<std::string>& words) =
      nullptr;
  /// It leaves nothing undone when a signal ends it.
  bool only_looks = false;
  /// It has more to say than that the cache gives no answer.
  bool shows_dead_cache = false;
};

/// The flags of every verb.
struct CommonFlags {
  bool json = false;
  bool quiet = false;
  bool verbose = false;
};

struct ParsedVerb {
  const Verb* verb;
  CLI::App* app;
  OptionSet options;
  Run run;
  std::shared_ptr<CommonFlags> common;  // with their values after parsing
};

struct Program {
  CLI::App app{"Compiles CUDA kernels into a cache, and looks after that cache.",
               "kiln"};
  std::string colour;             // of --color, which is read before
  std::vector<ParsedVerb> verbs;  // in the order in which help lists them
};

[[nodiscard]] std::unique_ptr<Program> make_program();

/// How help looks: says VERB where CLI11 says SUBCOMMAND, and ends with the groups that
/// repeat in each verb.
[[nodiscard]] std::shared_ptr<CLI::Formatter> help_formatter();

/// Prints the help of a program or verb with that formatter.
void print_help(const Terminal& out, const std::string& text);

/// Prints the answers for the last of `words`, which is empty or begun, in the place of
/// the words behind "kiln": for the completions of the shells, which ask `kiln
/// __complete WORD...`. One a line: the whole word, and behind a tab its meaning, if it
/// has one. Lines with a colon are for the shell: ":file GLOB", ":file" and ":folder"
/// add what is on the disk, ":open" says that no answer ends its word. Whatever fails
/// has no answers.
void complete(const Program& program, const std::vector<std::string>& words);

/// False for a flag and for a positional argument.
[[nodiscard]] bool takes_value(const CLI::Option& option);

/// "--jobs", "-o", "FILE".
[[nodiscard]] std::string first_name(const CLI::Option& option);

}  // namespace kiln::tools
