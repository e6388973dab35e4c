// Checks a worker's output, describes it, and encodes it as an object for the cache;
// and checks what the cache gives back.

#pragma once

#include <optional>
#include <string>
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

// Callers name programs by temporary files, so a key has the name only where it is
// likely to matter; an artifact that has it all the same says so, and answers no
// program of another name.

/// True if PTX, a cubin or LTO-IR was made otherwise than it would be under another
/// name: it has the name's last component as a string, or a symbol of internal linkage,
/// which NVRTC makes of the name. A constant that is computed from __FILE__ by a macro
/// of a header and leaves nothing of it is not seen.
[[nodiscard]] bool is_named_in_image(std::string_view image, std::string_view name);

/// The log of a program called `name`, if `log` is that of the same program called
/// `was`; nullopt if that cannot be told: NVRTC begins its messages with the name, and
/// `was` is anywhere else.
[[nodiscard]] std::optional<std::string> renamed_log(std::string_view log,
                                                     std::string_view was,
                                                     std::string_view name);

/// True if NVRTC's log of a failure is that of a program called `name`.
[[nodiscard]] bool is_failure_of(std::string_view log, std::string_view name);

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
