// The section `source` of an object: a source and, behind it, the texts of its headers
// in memory. cache/FORMAT.md, "Object", is the contract. And all texts of which a
// preimage has only digests, for `kiln why`.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "build/request_keys.h"
#include "cache/object.h"
#include "compile/protocol/job.h"
#include "key/difference.h"
#include "kiln/result.h"

namespace kiln {

/// Of all headers in memory of one source; of more than that none is kept.
inline constexpr std::size_t kMostHeaderBytes = std::size_t{256} << 10U;

/// The section of a source without a NUL.
[[nodiscard]] std::string with_headers(
    const std::string& source, const std::vector<compile::MemoryHeader>& headers);

/// The source, without headers. Errors: kCorrupt.
[[nodiscard]] Result<std::string> source_of(const cache::StoredObject& object);

/// The texts that the object has; none of files, and none that cannot be read.
[[nodiscard]] key::Texts texts_of(const cache::StoredObject& object);

/// The texts of a source and its headers in memory; none of any other request.
[[nodiscard]] key::Texts texts_of(const PreparedRequest& request);

}  // namespace kiln
