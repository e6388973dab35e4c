// What can stand next on a command line, for the completions of the shells in this
// folder.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string_view>
#include <utility>

#include "build/dead_mounts.h"
#include "build/entry_label.h"
#include "build/settings.h"
#include "device/known_architectures.h"
#include "device/profile.h"
#include "ops/preset.h"
#include "tools/catalog.h"
#include "tools/open_cache.h"
#include "tools/program.h"
#include "util/demangle.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

/// The begun word, and the answers that begin with it.
class Answers {
 public:
  explicit Answers(const std::string& word) : rest_(word) {}

  /// The part of the word that is not done yet: "9" of "--arch=8.0,9".
  [[nodiscard]] const std::string& rest() const { return rest_; }
  void is_done(std::size_t letters) {
    head_ += rest_.substr(0, letters);
    rest_.erase(0, letters);
  }
  void add(std::string_view answer, std::string_view meaning = {}) const {
    if (!answer.starts_with(rest_))
      return;
    meaning =
        meaning.substr(0, std::min(meaning.find_first_of(";\n"), meaning.find(" (")));
    print(
        fmt::format("{}{}{}{}\n", head_, answer, meaning.empty() ? "" : "\t", meaning));
  }

 private:
  std::string head_;
  std::string rest_;
};

/// Where the cursor is.
struct Place {
  const ParsedVerb* verb = nullptr;    // null: no verb yet
  const CLI::Option* value = nullptr;  // a value of this option is due
  std::size_t arguments = 0;           // that stand before it
  bool is_behind_dashes = false;
  bool is_help = false;  // `kiln help`: a verb is due
  bool is_lost = false;  // there is no such verb, or nothing behind `help VERB`
  std::map<std::string, std::string> given{};  // the last value of each option

  [[nodiscard]] const CLI::App& app(const Program& program) const {
    return verb == nullptr ? program.app : *verb->app;
  }
};

const ParsedVerb* find_verb(const Program& program, const std::string& name) {
  const auto found = std::ranges::find_if(
      program.verbs, [&](const ParsedVerb& each) { return each.verb->name == name; });
  return found == program.verbs.end() ? nullptr : &*found;
}

Place place_of(const Program& program, const std::vector<std::string>& words) {
  Place place;
  for (std::size_t i = 0; i + 1 < words.size() && !place.is_lost; ++i) {
    const std::string& word = words[i];
    const bool is_option = !place.is_behind_dashes && word.starts_with('-');
    if (place.value != nullptr) {
      place.given[first_name(*std::exchange(place.value, nullptr))] = word;
    } else if (is_option && word == "--") {
      place.is_behind_dashes = true;
    } else if (is_option) {
      const std::size_t equals = word.find('=');
      const auto* const option =
          place.app(program).get_option_no_throw(word.substr(0, equals));
      if (option != nullptr && takes_value(*option) && equals == std::string::npos)
        place.value = option;
      else if (option != nullptr && takes_value(*option))
        place.given[first_name(*option)] = word.substr(equals + 1);
    } else if (place.verb == nullptr) {
      place.verb = find_verb(program, word);
      place.is_lost = place.is_help || (place.verb == nullptr && word != "help");
      place.is_help = word == "help";
    } else {
      ++place.arguments;
    }
  }
  return place;
}

Result<Config> config_at(const Place& place) {
  Config config = KILN_TRY(settings({}, process_environment()));
  if (const auto dir = place.given.find("--cache-dir"); dir != place.given.end())
    config.cache_dir = dir->second;
  KILN_TRY(check_mount(config, "--cache-dir", config.cache_dir));
  return config;
}

constexpr std::size_t kMostEntries = 1000;

Result<void> add_keys(const Answers& answers, const Place& place) {
  const auto cache = KILN_TRY(open_cache(KILN_TRY(config_at(place))));
  cache::ListQuery query;
  query.limit = kMostEntries;
  for (const cache::Entry& entry : KILN_TRY(cache->list(query))) {
    const std::string key = entry.key.short_hex();
    answers.add(answers.rest().size() > key.size()
                    ? entry.key.hex().substr(0, answers.rest().size())
                    : key,
                entry_label(entry) + " " + entry.arch);
  }
  return {};
}

/// Of --signer: the keys that have signed something in the cache.
Result<void> add_signers(const Answers& answers, const Place& place) {
  const auto cache = KILN_TRY(open_cache(KILN_TRY(config_at(place))));
  std::set<std::string> names;
  for (const auto& [object, signers] : cache->signers().read()) {
    for (const cache::SignedBy& each : signers) names.insert(key_name(each.key));
  }
  for (const std::string& name : names) answers.add(name);
  return {};
}

/// Of --name and --file: what the cache has. A name is offered without its template
/// arguments, which a shell would read as redirections; it means every instance.
Result<void> add_names(const Answers& answers, const Place& place, bool are_files) {
  const auto cache = KILN_TRY(open_cache(KILN_TRY(config_at(place))));
  std::set<std::string> names;
  for (const cache::Entry& entry : KILN_TRY(cache->list({.limit = kMostEntries}))) {
    if (are_files)
      names.insert(std::filesystem::path(entry.file).filename());
    else if (!entry.template_name.empty())
      names.insert(entry.template_name);
    else
      for (const cache::EntryPoint& each : entry.entry_points) {
        const std::string name = source_name(each.name);
        names.insert(name.substr(0, name.find('<')));
      }
  }
  for (const std::string& name : names) {
    if (!name.empty() && name.find(' ') == name.npos)  // "main.cu and 1 more"
      answers.add(name);
  }
  return {};
}

/// NAME:p=v,...: names of kernels and families, then of parameters, then values.
Result<void> add_template(Answers& answers, const Place& place) {
  CatalogOptions options;
  if (const auto dir = place.given.find("--template-dir"); dir != place.given.end())
    options.template_dirs.push_back(dir->second);
  const auto catalog = KILN_TRY(open_catalog(KILN_TRY(config_at(place)), options));
  const std::size_t colon = answers.rest().find(':');
  if (colon == std::string::npos) {
    for (const std::string& family : catalog.family_names()) answers.add(family);
    for (const auto& kernel : KILN_TRY(catalog.kernels()))
      answers.add(kernel->name(), kernel->summary());
    return {};
  }
  const auto kernel = KILN_TRY(catalog.find(answers.rest().substr(0, colon)));
  answers.is_done(answers.rest().find_last_of(":,") + 1);
  const std::size_t equals = answers.rest().find('=');
  if (equals == std::string::npos)
    print(":open\n");
  for (const render::Parameter& parameter : kernel->parameters()) {
    if (equals == std::string::npos) {
      answers.add(parameter.name + "=", parameter.meaning);
    } else if (answers.rest().substr(0, equals) == parameter.name) {
      answers.is_done(equals + 1);
      for (const std::string& value : parameter.values) answers.add(value);
      break;
    }
  }
  return {};
}

void add_architectures(Answers& answers) {
  constexpr int kOldestNvrtc = 12;  // that Kiln works with
  answers.is_done(answers.rest().rfind(',') + 1);
  answers.add("native", "The devices of this machine");
  std::set<std::string> names;
  for (const device::KnownArchitecture& each : device::known_architectures()) {
    if (!each.last || each.last->major >= kOldestNvrtc)
      names.insert(to_string(each.capability));
  }
  for (const std::string& name : names) answers.add(name);
}

/// "fwd, bwd; which pass" of an option's meaning: its words, and what they mean. No
/// words: all of it is the meaning.
std::pair<std::string, std::string> listed(const std::string& text) {
  static const std::regex list("([\\w+]+(?:, [\\w+]+)+)(?:; *([^]*))?");
  std::smatch found;
  return std::regex_match(text, found, list) ? std::pair(found.str(1), found.str(2))
                                             : std::pair(std::string(), text);
}

/// The words that help says an option takes: off|r|rw as its type, in which others are
/// capitals, or those of its meaning.
void add_words(const Answers& answers, const CLI::Option& option) {
  static const std::regex word("[a-z0-9_+]+(?![A-Z])");
  std::string words = listed(option.get_description()).first;
  if (words.empty())
    words = option.get_type_name();
  for (std::sregex_iterator at(words.begin(), words.end(), word), end; at != end; ++at)
    answers.add(at->str());
}

/// "new" and "show" of "new: makes a key. show: prints one".
void add_actions(const Answers& answers, const std::string& meaning) {
  static const std::regex action("(?:^|\\. )([a-z]+): ([^.:]*)");
  for (std::sregex_iterator at(meaning.begin(), meaning.end(), action), end; at != end;
       ++at)
    answers.add((*at)[1].str(), (*at)[2].str());
}

void add_files(const CLI::Option& option, std::string_view verb) {
  const std::string name = first_name(option);
  const std::string type = option.get_positional() ? name : option.get_type_name();
  if (type == "DIR")
    print(":folder\n");
  else if (name == "--preset")
    print(":file *.toml\n");
  else if (type == "FILE|NAME")
    print(":file *.json\n");
  else if (type == "FILE" && (name == "--pack" || verb == "unpack"))
    print(name == "--keys" ? ":file\n" : ":file *.kpack*\n");
  else if (type == "FILE" || type == "PATH" || type == "PROGRAM" ||
           (type == "KEY" && verb == "why"))
    print(":file\n");
}

Result<void> add_values(Answers& answers, const Place& place,
                        const CLI::Option& option) {
  const std::string name = first_name(option);
  const std::string_view verb = place.verb == nullptr ? "" : place.verb->verb->name;
  add_files(option, verb);
  if (name == "KEY")
    return add_keys(answers, place);
  if (name == "--template" || name == "TEMPLATE" ||
      (name == "NAME" && verb == "templates"))
    return add_template(answers, place);
  if (option.get_type_name() == "KEYID")
    return add_signers(answers, place);
  if (option.get_type_name() == "PATTERN")
    return add_names(answers, place, name == "--file");
  if (name == "--arch")
    add_architectures(answers);
  else if (name == "--preset")
    for (const ops::BuiltInPreset& each : ops::built_in_presets())
      answers.add(each.name);
  else if (option.get_type_name() == "FILE|NAME")
    for (const auto& each : device::published_profiles()) answers.add(each.name);
  else if (name == "ACTION")
    add_actions(answers, option.get_description());
  else if (!option.get_positional())
    add_words(answers, option);
  return {};
}

void add_verbs(const Answers& answers, const Program& program) {
  for (const ParsedVerb& each : program.verbs)
    answers.add(each.verb->name, each.verb->summary);
  answers.add("help", "Print the help of a verb");
}

void add_options(const Answers& answers, const Program& program, const Place& place,
                 const std::vector<std::string>& words) {
  std::vector<std::string> foreign;
  if (place.verb != nullptr && place.verb->verb->foreign_options != nullptr)
    foreign = place.verb->verb->foreign_options(words);
  for (const CLI::Option* option : place.app(program).get_options()) {
    const std::string name = first_name(*option);
    if (!option->get_positional() && std::ranges::find(foreign, name) == foreign.end())
      answers.add(name, listed(option->get_description()).second);
  }
}

Result<void> add_argument(Answers& answers, const Place& place) {
  const auto arguments = place.verb->app->get_options(
      [](const CLI::Option* option) { return option->get_positional(); });
  if (arguments.empty())
    return {};
  const CLI::Option& next = *arguments[std::min(place.arguments, arguments.size() - 1)];
  const bool takes_more = next.get_items_expected_max() > 1;
  if (place.arguments < arguments.size() || takes_more)
    return add_values(answers, place, next);
  return {};
}

}  // namespace

void complete(const Program& program, const std::vector<std::string>& words) {
  const Place place = place_of(program, words);
  if (place.is_lost)
    return;
  Answers answers(words.empty() ? "" : words.back());
  const std::size_t equals = answers.rest().find('=');
  const bool is_option = !place.is_behind_dashes && answers.rest().starts_with('-');
  const CLI::Option* option = place.value;
  if (option == nullptr && is_option && equals != std::string::npos) {
    option = place.app(program).get_option_no_throw(answers.rest().substr(0, equals));
    answers.is_done(equals + 1);
    if (option == nullptr)
      return;
  }
  // An error has no answers: a shell would show it within the line.
  if (option != nullptr)
    std::ignore = add_values(answers, place, *option);
  else if (is_option)
    add_options(answers, program, place, words);
  else if (place.verb == nullptr)
    add_verbs(answers, program);
  else
    std::ignore = add_argument(answers, place);
}

}  // namespace kiln::tools
