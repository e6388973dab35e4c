// What a pack is besides its objects: a name, which a signature covers, so that nobody
// can give out one pack for another; and a place in the order of those of its name, the
// last of which a root remembers. FORMAT.md, "Packs taken".

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cache/pack.h"
#include "kiln/result.h"
#include "util/own_path.h"

namespace kiln::cache {

/// That a pack which calls itself `own` may be taken for `wanted`. One without a name
/// of its own, as of version 1, may be any, and so is none. Errors: kUntrusted.
[[nodiscard]] Result<void> check_pack_is(std::string_view own, std::string_view wanted);

/// "serial 17, of 2023-11-14T22:13:20Z".
[[nodiscard]] std::string order_text(const PackHeader& header);

/// Where an object comes from: "job.kpack@17". `name` as for newer_taken().
[[nodiscard]] std::string source_text(const PackHeader& header, std::string_view name);

/// The last pack that was taken, by the hints in `folder`, if `header` is of an older
/// one of its name; `name` is that of a pack that has none.
[[nodiscard]] std::optional<PackHeader> newer_taken(const OwnFolder& folder,
                                                    const PackHeader& header,
                                                    std::string_view name);

/// Which pack is the last of its name from now on.
enum class LastPack : bool {
  kNewest,  // the one with the largest serial, also of those taken at this moment
  kThis,
};

/// Remembers the last pack of a name, of which one with `header` was taken. Errors:
/// kIo, kUntrusted.
[[nodiscard]] Result<void> remember_taken(const OwnFolder& folder,
                                          const PackHeader& header, LastPack which);

}  // namespace kiln::cache
