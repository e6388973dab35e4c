// The settings of Kiln, each in one row: how it is called, how its text is read, and
// which field of Config it is. The environment, C and Python give text; C++ gives the
// members of Options.

#pragma once

#include <span>
#include <string>
#include <string_view>

#include "build/config.h"
#include "kiln/result.h"
#include "kiln/service.h"

namespace kiln {

/// What a setting's text is. Lists are of paths with colons, or of names or numbers
/// with commas; an empty text is the empty list.
enum class SettingKind : std::uint8_t {
  kText,
  kPath,
  kPaths,
  kNames,
  kNumbers,
  kNumber,
  kSwitch,    // "1", "on", "true", "yes", or "0", "off", "false", "no"
  kSize,      // "10GiB"
  kDuration,  // "5m", "100ms"; a number alone is of seconds
};

struct Setting {
  const char* option;    // "Options::jobs"
  const char* variable;  // of the environment
  SettingKind kind;
  const char* meaning;   // a sentence
  const char* fallback;  // the value without option and variable; "": none
  Result<void> (*read)(const std::string& text, Options& to);
  /// Nothing where `from` has none; `by` is for messages.
  void (*set)(const Options& from, SetBy by, Config& to);

  /// "jobs", for C and Python.
  [[nodiscard]] std::string_view name() const;
  /// read(), whose errors begin with `by`: the name, the variable or the flag.
  [[nodiscard]] Result<void> read_by(std::string_view by, const std::string& text,
                                     Options& to) const;
};

/// In the order in which help and the guide list them.
[[nodiscard]] std::span<const Setting> every_setting();

/// By its name; null if there is none.
[[nodiscard]] const Setting* find_setting(std::string_view name);

/// Reads "jobs=4". Errors: kInvalidArgument, a name that is none, or a value that is
/// not one of its kind.
[[nodiscard]] Result<void> read_setting(std::string_view assignment, Options& to);

/// `options` over the environment. Errors: kInvalidArgument, naming the variable or the
/// member of Options.
[[nodiscard]] Result<Config> settings(const Options& options,
                                      const Environment& environment);

}  // namespace kiln
