// Files as objects of the cache: what FileCache and FileBuild share.

#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "build/cached_builds.h"
#include "cache/object.h"
#include "codec/fields.h"
#include "kiln/file_cache.h"
#include "kiln/result.h"

namespace kiln::files {

/// As messages name it.
[[nodiscard]] std::string label_of(const FileRequest& request);

/// The fields whose digest is the key. Errors: kInvalidArgument (there are none).
[[nodiscard]] Result<Fields> preimage_of(const FileFields& fields);

/// `took`: how long the build took. Errors: as FileCache::put().
[[nodiscard]] Result<cache::StoredObject> make_object(
    const FileRequest& request, const Fields& preimage,
    const std::vector<NamedFile>& files, std::chrono::milliseconds took);

/// Its files, given out. Errors: as give_files().
[[nodiscard]] Result<CachedFiles> given_of(const Fetched& fetched);

}  // namespace kiln::files
