#include "cache/pack_name.h"

#include <fmt/format.h>

namespace kiln::cache {

std::string_view bare_pack_name(std::string_view name) {
  for (const std::string_view ending : {".zst", ".kpack"}) {
    if (name.ends_with(ending))
      name.remove_suffix(ending.size());
  }
  return name;
}

Result<void> check_pack_is(std::string_view own, std::string_view wanted) {
  if (own.empty() || bare_pack_name(own) == bare_pack_name(wanted))
    return {};
  return fail(
      ErrorCode::kUntrusted,
      fmt::format("the pack calls itself {}, and {} was asked for: somebody has "
                  "renamed it, or the server gives another",
                  own, wanted));
}

}  // namespace kiln::cache
