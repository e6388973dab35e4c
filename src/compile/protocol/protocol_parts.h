// The fields that several of protocol.h's messages share.

#pragma once

#include <string_view>

#include "codec/field_decoder.h"
#include "codec/frame.h"
#include "compile/protocol/job.h"
#include "kiln/result.h"

namespace kiln::compile {

void add_paths(Fields& fields, const NvrtcPaths& paths);
[[nodiscard]] NvrtcPaths read_paths(FieldDecoder& decoder);

/// Exactly one library under `label`.
void add_library(Fields& fields, std::string_view label, const LoadedLibrary& library);
[[nodiscard]] LoadedLibrary read_library(FieldDecoder& decoder, std::string_view label);

}  // namespace kiln::compile
