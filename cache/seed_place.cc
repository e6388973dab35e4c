#include "cache/seed_place.h"

#include <array>
#include <string>

#include "cache/pack.h"
#include "util/nearest.h"
#include "util/text.h"
#include "util/trailing_options.h"
#include "util/try.h"
#include "util/units.h"
#include "util/words.h"

namespace kiln::cache {

Result<SeedPlace> parse_seed(const std::filesystem::path& text) {
  const std::array<std::string, 3> names{"min_serial", "older", "signed"};
  std::string_view options = text.native();
  const std::string_view path = next_part(options, ";");
  SeedPlace place{.path = path};
  KILN_TRY(read_options(
      path, options,
      [&](const std::string& name, const std::string& value) -> Result<void> {
        if (name == "signed")
          place.is_signed = KILN_TRY(parse_number(value, {0, 1})) == 1;
        else if (name == "min_serial")
          place.min_serial = KILN_TRY(parse_number(value, {0, kMostSerial}));
        else if (name == "older")
          place.refuses_older =
              KILN_TRY(position_of(
                  value, std::array<std::string_view, 2>{"warn", "refuse"})) == 1;
        else
          return refuse("there is no option '{}'{}", name, did_you_mean(name, names));
        return {};
      }));
  return place;
}

Result<void> check_seeds(std::span<const std::filesystem::path> texts, bool has_keys) {
  for (const std::filesystem::path& text : texts) {
    const SeedPlace place = KILN_TRY(parse_seed(text));
    if (place.is_signed && !has_keys)
      return refuse(
          "{};signed=1: no key is trusted, so no signature can be "
          "checked; name a file of public keys by "
          "KILN_REMOTE_KEYS (--keys)",
          place.path.native());
  }
  return {};
}

}  // namespace kiln::cache
