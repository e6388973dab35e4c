// Declares the options of one verb, and reads the numbers among their values. Only the
// code that reads the command line includes CLI11, whose headers are large.

#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "build/config.h"
#include "kiln/result.h"
#include "util/units.h"

namespace CLI {  // NOLINT(readability-identifier-naming): its own name
class App;
}  // namespace CLI

namespace kiln {
struct Setting;
}  // namespace kiln

namespace kiln::tools {

/// An option that comes before a setting of the environment.
struct SettingOption {
  std::string name;  // "--jobs"
  const Setting* setting;
  std::string value;  // empty: not given
};

enum class Presence { kOptional, kRequired };

/// Headings of help, in the order in which every verb has those that it needs. The last
/// is the same in most of them.
inline constexpr const char* kSelectionGroup = "Selection";
inline constexpr const char* kBuildGroup = "Build";
inline constexpr const char* kRemovalGroup = "Removal";
inline constexpr const char* kOutputGroup = "Output";
inline constexpr const char* kFleetGroup = "Cache and fleet";

/// A reference to CLI11's verb; a copy refers to the same verb. The variables that
/// receive values must outlive the parsing.
class OptionSet {
 public:
  explicit OptionSet(CLI::App& app) : app_(&app) {}

  /// Help has the options that are declared from here on under this heading.
  void group(const std::string& heading);
  /// "--jobs N": one value; `type` is its name in help.
  void option(const std::string& name, std::string& value, const std::string& type,
              const std::string& meaning);
  /// The same, but repeatable: once per value.
  void option(const std::string& name, std::vector<std::string>& values,
              const std::string& type, const std::string& meaning);
  void flag(const std::string& name, bool& value, const std::string& meaning);
  /// One value, which comes before that of the setting with this name, "jobs". An empty
  /// `meaning` is the setting's.
  void setting(const std::string& name, const std::string& type,
               std::string_view setting, std::string_view meaning = {});
  /// A positional argument.
  void argument(const std::string& name, std::string& value, const std::string& meaning,
                Presence presence = Presence::kOptional);
  void argument(const std::string& name, std::vector<std::string>& values,
                const std::string& meaning, Presence presence = Presence::kOptional);
  /// Text below the verb's help.
  void footer(const std::string& text);

  /// After parsing.
  [[nodiscard]] bool is_given(const std::string& name) const;
  /// After parsing, overwrites what options of setting() say. Errors: kInvalidArgument,
  /// naming the option.
  [[nodiscard]] Result<void> read_settings(Config& config) const;
  /// All that setting() declared, with their values after parsing.
  [[nodiscard]] std::vector<SettingOption> given_settings() const {
    return {settings_->begin(), settings_->end()};
  }

 private:
  CLI::App* app_;
  // Their addresses stay; a name that a Config has lives as long as this.
  std::shared_ptr<std::list<SettingOption>> settings_ =
      std::make_shared<std::list<SettingOption>>();
};

/// As kiln::parse_number(). Errors: kInvalidArgument, naming `option` as well.
[[nodiscard]] Result<std::uint64_t> parse_number(std::string_view option,
                                                 std::string_view text,
                                                 NumberRange range);

}  // namespace kiln::tools
