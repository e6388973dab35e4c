// How an entry of the cache is called: by `ls`, and in what a job is told.

#pragma once

#include <string>

#include "cache/entry.h"
#include "cache/object.h"
#include "kiln/request.h"

namespace kiln {

/// Those of its template.
[[nodiscard]] Parameters params_of(const cache::Entry& entry);

/// "scaled_softmax_fwd:dtype=bf16,max_cols=any", "scale.cu: scale<half>", "(files)".
[[nodiscard]] std::string entry_label(const cache::Entry& entry);

/// The same of an object; "" of one whose metadata is damaged.
[[nodiscard]] std::string name_of(const cache::StoredObject& object);

}  // namespace kiln
