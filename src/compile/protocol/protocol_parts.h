// The fields that several of protocol.h's messages share.

#pragma once

#include <string_view>

#include "codec/field_decoder.h"
#include "compile/protocol/job.h"
#include "kiln/result.h"

namespace kiln::compile {

/// The prefix of every error about a message.
inline constexpr std::string_view kSubject = "worker message";

/// kCorrupt: "worker message: <what>".
[[nodiscard]] tl::unexpected<Error> corrupt_message(std::string_view what);

void add_paths(Fields& fields, const NvrtcPaths& paths);
[[nodiscard]] NvrtcPaths read_paths(FieldDecoder& decoder);

void add_target(Fields& fields, const device::Target& target);
[[nodiscard]] device::Target read_target(FieldDecoder& decoder);

/// Exactly one library under `label`.
void add_library(Fields& fields, std::string_view label, const LoadedLibrary& library);
[[nodiscard]] LoadedLibrary read_library(FieldDecoder& decoder, std::string_view label);

}  // namespace kiln::compile
