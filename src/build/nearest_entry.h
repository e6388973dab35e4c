// The entry of the cache that comes nearest to a request which misses, and how they
// differ: the answer of `kiln why`, and of a job's log.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "build/request_keys.h"
#include "cache/cache.h"
#include "codec/digest.h"
#include "codec/fields.h"
#include "key/difference.h"
#include "kiln/result.h"

namespace kiln {

/// Of what a request may differ from: entries of its template, or of kernels of its
/// file.
struct Likeness {
  std::string template_name{};  // also of files; empty: a source
  std::string file{};
  std::vector<std::string> kernels{};  // of the source, one of which an entry needs
  friend auto operator<=>(const Likeness&, const Likeness&) = default;
};

/// A request, as it is compared with entries.
struct Compared {
  Fields preimage;
  Likeness like;
  key::Texts texts = {};  // without them, texts of the entry are not read either
};

[[nodiscard]] Likeness likeness_of(const PreparedRequest& request);

struct NearestEntry {
  Digest key;
  std::vector<key::FieldDifference> differences;
};

/// Whether lines of sources and headers may be shown.
enum class Quotes : bool { kNo, kYes };

/// "option: --fmad=true, in the entry --fmad=false; and 2 more".
[[nodiscard]] std::string to_text(const std::vector<key::FieldDifference>& differences,
                                  Quotes quotes = Quotes::kYes);

/// Reads the entries of one likeness once.
/// Thread safety: none.
class NearestEntries {
 public:
  enum class IfNoneIsLike : bool { kNone, kAnyEntry };

  /// Compares with at most so many entries, the newest.
  NearestEntries(cache::Cache& cache, std::size_t most, IfNoneIsLike if_none)
      : cache_(cache), most_(most), if_none_(if_none) {}

  /// nullopt: there is no entry to compare with. The entry `key` itself counts as none.
  /// Errors: as Cache::list.
  [[nodiscard]] Result<std::optional<NearestEntry>> find(const Digest& key,
                                                         const Compared& wanted);

 private:
  struct Candidates {
    std::vector<Digest> keys;
    std::vector<Fields> preimages;
  };
  [[nodiscard]] Result<Candidates*> candidates(const Likeness& like);

  cache::Cache& cache_;
  const std::size_t most_;
  const IfNoneIsLike if_none_;
  std::map<Likeness, Candidates> read_;
};

}  // namespace kiln
