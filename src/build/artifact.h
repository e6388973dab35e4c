// From what a worker gave back to an object that can be kept: checked, described,
// encoded.

#pragma once

#include <optional>
#include <string_view>

#include "build/request_keys.h"
#include "cache/object.h"
#include "codec/fields.h"
#include "compile/protocol/job.h"
#include "kiln/result.h"

namespace kiln {

/// Is this what was asked for: a whole image of the target's kind and architecture with
/// every entry point in it, and at least one? The pool has checked the architecture and
/// the lowered names; what a request means by entry points is known here alone.
/// Errors: kCompileFailed, naming what disagrees.
[[nodiscard]] Result<void> check_output(const KeyedRequest& request,
                                        const compile::CompileOutput& output);

/// Why the result must not be kept under this key: another libnvrtc, or other builtins,
/// were loaded than those that the key names. nullopt: they are the ones.
[[nodiscard]] std::optional<Error> other_toolchain(
    const KeyedRequest& request, const compile::CompileOutput& output);

/// The object, in memory, whole and checked; publishing it writes exactly these bytes.
/// Errors: kResourceLimit (an image too large to keep), kCorrupt.
[[nodiscard]] Result<cache::StoredObject> make_object(
    const KeyedRequest& request, const Fields& preimage, std::string_view source,
    const compile::CompileOutput& output);

}  // namespace kiln
