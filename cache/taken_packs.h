// The packs that a root has taken: of each name the last, so that one that is older is
// noticed. Files in `<root>/packs`, which are hints: FORMAT.md, "Packs taken". Without
// them, as in a root that is new or cannot be written, each pack is as good as another.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cache/pack.h"
#include "kiln/result.h"
#include "util/own_path.h"

namespace kiln::cache {

struct TakenPack {
  std::string name;
  std::uint64_t serial = 0;
  std::int64_t created_ns = 0;
  friend bool operator==(const TakenPack&, const TakenPack&) = default;
};

/// "serial 17, of 2023-11-14T22:13:20Z".
[[nodiscard]] std::string order_text(std::uint64_t serial, std::int64_t created_ns);

/// Thread safety: every method may run concurrently, also in several processes; of two
/// packs of one name that are taken at one moment, either is the last.
class TakenPacks {
 public:
  /// An empty folder: nothing is known and kept.
  explicit TakenPacks(OwnFolder folder = {}) : folder_(std::move(folder)) {}

  /// The last of that name, with or without its endings; nullopt: none is known.
  [[nodiscard]] std::optional<TakenPack> find(std::string_view name) const;

  /// The last of its name, if a pack with `header` is older; `name` is that of one that
  /// has none, as of version 1.
  [[nodiscard]] std::optional<TakenPack> newer_than(const PackHeader& header,
                                                    std::string_view name) const;

  /// From now on it is the last. Errors: kIo, kUntrusted.
  [[nodiscard]] Result<void> add(const PackHeader& header) const;

 private:
  OwnFolder folder_;
};

}  // namespace kiln::cache
