#include "key/options.h"

#include <array>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "util/try.h"

namespace kiln::key {
namespace {

enum class Meaning : std::uint8_t { kIncludeDir, kDefine, kUndefine, kPreInclude };

struct Spelling {
  std::string_view text;
  bool joined = false;  // the value may follow without a '='
  Meaning meaning = Meaning::kDefine;
};

// If one is a prefix of another, the longer one comes first.
constexpr std::array kSpellings = {
    Spelling{"-include", false, Meaning::kPreInclude},
    Spelling{"--pre-include", false, Meaning::kPreInclude},
    Spelling{"--include-path", false, Meaning::kIncludeDir},
    Spelling{"-I", true, Meaning::kIncludeDir},
    Spelling{"--define-macro", false, Meaning::kDefine},
    Spelling{"-D", true, Meaning::kDefine},
    Spelling{"--undefine-macro", false, Meaning::kUndefine},
    Spelling{"-U", true, Meaning::kUndefine},
};

// One option with its value, taken from the list.
struct Taken {
  Meaning meaning;
  std::optional<std::string> value;  // nullopt: missing
  std::size_t count = 1;             // entries of the list that it takes
};

// "-I x", "-I=x" and "-Ix", as one entry or two; nullopt: another option.
std::optional<Taken> take(const std::vector<std::string>& options, std::size_t at) {
  const std::string& option = options[at];
  for (const Spelling& spelling : kSpellings) {
    if (!option.starts_with(spelling.text))
      continue;
    std::string_view rest = std::string_view(option).substr(spelling.text.size());
    if (rest.empty()) {
      if (at + 1 == options.size())
        return Taken{spelling.meaning, std::nullopt};
      return Taken{spelling.meaning, options[at + 1], 2};
    }
    if (!spelling.joined && rest.front() != '=' && rest.front() != ' ')
      continue;
    if (rest.front() == '=')
      rest.remove_prefix(1);
    while (rest.starts_with(' ')) rest.remove_prefix(1);
    return Taken{spelling.meaning, std::string(rest)};
  }
  return std::nullopt;
}

Result<void> make_absolute(std::filesystem::path& dir) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(dir, error);
  if (error)
    return refuse("the include directory '{}' has no absolute path: {}", dir.native(),
                  error.message());
  dir = std::move(absolute);
  return {};
}

}  // namespace

Result<SourceKeyInput> normalized(SourceKeyInput input) {
  const std::vector<std::string> options = std::exchange(input.options, {});
  for (std::size_t at = 0; at < options.size();) {
    auto taken = take(options, at);
    if (!taken) {
      input.options.push_back(options[at++]);
      continue;
    }
    if (!taken->value || taken->value->empty())
      return refuse("the option {} has no value", options[at]);
    std::string& value = *taken->value;
    if (taken->meaning == Meaning::kIncludeDir)
      input.include_dirs.emplace_back(std::move(value));
    else if (taken->meaning == Meaning::kDefine)
      input.macros.push_back({MacroAction::kDefine, std::move(value)});
    else if (taken->meaning == Meaning::kUndefine)
      input.macros.push_back({MacroAction::kUndefine, std::move(value)});
    else  // stays, since its place among the others matters; in one spelling
      input.options.push_back("--pre-include=" + value);
    at += taken->count;
  }
  for (std::filesystem::path& dir : input.include_dirs) KILN_TRY(make_absolute(dir));
  return input;
}

std::vector<std::string> pre_includes(const std::vector<std::string>& options) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at < options.size();) {
    auto taken = take(options, at);
    if (taken && taken->meaning == Meaning::kPreInclude && taken->value)
      names.push_back(*std::move(taken->value));
    at += taken ? taken->count : 1;
  }
  return names;
}

Result<void> check_normalized(const SourceKeyInput& input) {
  for (std::size_t at = 0; at < input.options.size(); ++at) {
    const auto taken = take(input.options, at);
    if (taken && taken->meaning != Meaning::kPreInclude)
      return refuse(
          "{} is among the options; it belongs into the macros or include directories",
          input.options[at]);
  }
  for (const std::filesystem::path& dir : input.include_dirs) {
    if (!dir.is_absolute())
      return refuse("the include directory '{}' is not an absolute path", dir.native());
  }
  return {};
}

}  // namespace kiln::key
