// Checks a worker's output, describes it, and encodes it as an object for the cache;
// and checks what the cache gives back.

#pragma once

#include <optional>
#include <string_view>

#include "build/request_keys.h"
#include "cache/object.h"
#include "codec/fields.h"
#include "compile/protocol/job.h"
#include "kiln/result.h"

namespace kiln {

/// Checks that the output is what was asked for: a whole image of the target's kind and
/// architecture with every entry point in it, and at least one. The pool has checked
/// the architecture and the lowered names; only this function knows which entry points
/// a request needs. Errors: kCompileFailed, naming the mismatch; kCorrupt for an image
/// that cannot be read.
[[nodiscard]] Result<void> check_output(const KeyedRequest& request,
                                        const compile::CompileOutput& output);

/// Why the result must not be stored under this key: the worker loaded another
/// libnvrtc, other builtins or another nvJitLink than the key names. nullopt: both
/// match.
[[nodiscard]] std::optional<Error> other_toolchain(
    const KeyedRequest& request, const compile::CompileOutput& output);

/// The whole, checked object in memory; publishing it writes exactly these bytes.
/// Errors: kResourceLimit (an image too large to store), kCorrupt.
[[nodiscard]] Result<cache::StoredObject> make_object(
    const KeyedRequest& request, const Fields& preimage, std::string_view source,
    const compile::CompileOutput& output);

/// False if the object was made under another name of the program, and has it; then
/// RequestKeys::named() is asked for. Errors: kCorrupt.
[[nodiscard]] Result<bool> may_use(const KeyedRequest& request,
                                   const cache::StoredObject& object);

/// NVRTC's log as `request` gets it: under its own name. Errors: kCorrupt.
[[nodiscard]] Result<std::string> log_for(const KeyedRequest& request,
                                          const cache::StoredObject& object);

/// The log of an object that had one, where without_source() left it out.
inline constexpr std::string_view kLogLeftOut =
    "kiln: the log is not in this copy of the object\n";

/// The object as others get it, where that differs: of a request as NVRTC's without
/// source and log, which then is kLogLeftOut unless it is empty. Errors: kCorrupt.
[[nodiscard]] Result<std::optional<cache::StoredObject>> without_source(
    const cache::StoredObject& object);

/// The cache's PayloadCheck, with what it cannot check itself: an image, or every
/// kernel in a plan, is for the target that its object states, and has the entry points
/// that it states. Runs on every hit, before a caller gets the payload. Errors:
/// kCorrupt, naming the mismatch. Thread-safe.
[[nodiscard]] Result<void> check_stored_payload(const cache::StoredObject& object);

}  // namespace kiln
