// Who signed the objects of a root that came from elsewhere, and where they came from:
// a file of lines for each key, FORMAT.md, "Signers". Not in the index, which is made
// anew from the objects; without these files an object looks as if it was built here.

#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cache/object.h"
#include "codec/digest.h"
#include "codec/signature.h"
#include "kiln/result.h"
#include "util/own_path.h"

namespace kiln::cache {

/// Where objects come from that were not built here.
struct Origin {
  std::vector<KeyId> signers{};  // whose signatures counted; empty: nothing is kept
  std::string source{};          // "job.kpack, serial 17", "https://cache.example"
};

/// A signature of one object that counted when it was taken.
struct SignedBy {
  KeyId key{};
  std::string source{};
  Digest payload{};  // of what was signed
  friend bool operator==(const SignedBy&, const SignedBy&) = default;
};

/// An object as it was made: another build of its key is another. Whoever signs chooses
/// the time, and not the payload's digest.
struct Made {
  Digest key{};
  std::int64_t created_ns = 0;
  Digest payload{};
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads a defaulted <=>
  friend auto operator<=>(const Made&, const Made&) = default;
};
[[nodiscard]] Made made(const StoredObject& object);

/// Thread safety: every method may run concurrently, also in several processes.
class Signers {
 public:
  using Known = std::map<Made, std::vector<SignedBy>>;

  /// An empty folder: nothing is known and kept.
  explicit Signers(OwnFolder folder) : folder_(std::move(folder)) {}

  /// One write for each signer; of several objects only what is not known yet. Errors:
  /// kIo, kUntrusted.
  [[nodiscard]] Result<void> add(std::span<const Made> objects,
                                 const Origin& origin) const;

  /// Lines that are torn are left out, and so is a file that others could write.
  [[nodiscard]] Known read() const;

  /// Forgets keys that are not there, once half of the lines of a file are of those.
  /// Loses no line that is added meanwhile. Errors: kIo.
  [[nodiscard]] Result<void> keep(
      const std::function<bool(const Digest&)>& is_there) const;

 private:
  [[nodiscard]] std::vector<KeyId> keys() const;

  const OwnFolder folder_;
};

}  // namespace kiln::cache
