// The options of one verb, as a verb declares them. CLI11, whose headers are large, is
// included by what reads the command line alone.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): its own name
class App;
}  // namespace CLI

namespace kiln::tools {

enum class Presence { kOptional, kRequired };

/// A reference to what CLI11 keeps of a verb; copies are of the same verb. What options
/// are read into must live until they are parsed.
class OptionSet {
 public:
  explicit OptionSet(CLI::App& app) : app_(&app) {}

  /// "--jobs N": one value, `type` being its name in help.
  void option(const std::string& name, std::string& value, const std::string& type,
              const std::string& meaning);
  /// The same, given as often as there are values.
  void option(const std::string& name, std::vector<std::string>& values,
              const std::string& type, const std::string& meaning);
  void flag(const std::string& name, bool& value, const std::string& meaning);
  /// A word that stands by itself.
  void argument(const std::string& name, std::string& value, const std::string& meaning,
                Presence presence = Presence::kOptional);
  void argument(const std::string& name, std::vector<std::string>& values,
                const std::string& meaning);
  /// Stands under the verb's help.
  void footer(const std::string& text);

  /// After parsing.
  [[nodiscard]] bool is_given(const std::string& name) const;

 private:
  CLI::App* app_;
};

}  // namespace kiln::tools
