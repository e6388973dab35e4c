#include "tools/option_set.h"

#include <fmt/format.h>

#include <CLI/App.hpp>

#include "build/settings.h"
#include "util/try.h"

namespace kiln::tools {

void OptionSet::group(const std::string& heading) {
  app_->option_defaults()->group(heading);
}

void OptionSet::option(const std::string& name, std::string& value,
                       const std::string& type, const std::string& meaning) {
  app_->add_option(name, value, meaning)->type_name(type);
}

void OptionSet::option(const std::string& name, std::vector<std::string>& values,
                       const std::string& type, const std::string& meaning) {
  // One value per use, repeated for more: never "all words up to the next option".
  app_->add_option(name, values, meaning)->type_name(type)->allow_extra_args(false);
}

void OptionSet::flag(const std::string& name, bool& value, const std::string& meaning) {
  app_->add_flag(name, value, meaning);
}

void OptionSet::setting(const std::string& name, const std::string& type,
                        std::string_view setting, std::string_view meaning) {
  const Setting& row = *find_setting(setting);
  if (meaning.empty()) {
    meaning = row.meaning;
    meaning.remove_suffix(1);  // help's sentences have no full stop
  }
  SettingOption& added = settings_->emplace_back(SettingOption{name, &row, {}});
  option(name, added.value, type,
         fmt::format("{} (default: ${}{}{})", meaning, row.variable,
                     *row.fallback == 0 ? "" : ", then ", row.fallback));
}

Result<void> OptionSet::read_settings(Config& config) const {
  for (const auto& [name, setting, value] : *settings_) {
    if (value.empty())
      continue;
    Options given;
    KILN_TRY(setting->read_by(name, value, given));
    setting->set(given, {name}, config);
  }
  return {};
}

void OptionSet::argument(const std::string& name, std::string& value,
                         const std::string& meaning, Presence presence) {
  app_->add_option(name, value, meaning)
      ->type_name("")  // its name says it all
      ->required(presence == Presence::kRequired);
}

void OptionSet::argument(const std::string& name, std::vector<std::string>& values,
                         const std::string& meaning, Presence presence) {
  app_->add_option(name, values, meaning)
      ->type_name("")
      ->required(presence == Presence::kRequired);
}

void OptionSet::footer(const std::string& text) {
  app_->footer(text);
}

bool OptionSet::is_given(const std::string& name) const {
  return app_->count(name) > 0;
}

Result<std::uint64_t> parse_number(std::string_view option, std::string_view text,
                                   NumberRange range) {
  return about(option, kiln::parse_number(text, range));
}

}  // namespace kiln::tools
