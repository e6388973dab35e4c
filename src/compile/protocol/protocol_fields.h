// The payloads of protocol.h's messages as field lists, and back.

#pragma once

#include "codec/fields.h"
#include "compile/protocol/protocol.h"
#include "kiln/result.h"

namespace kiln::compile {

[[nodiscard]] Fields to_fields(const CompileJob& job);
[[nodiscard]] Fields to_fields(const DescribeRequest& request);
[[nodiscard]] Fields to_fields(const Hello& hello);
[[nodiscard]] Fields to_fields(const Progress& progress);
[[nodiscard]] Fields to_fields(const CompileOutput& output);
[[nodiscard]] Fields to_fields(const ToolchainDescription& description);
[[nodiscard]] Fields to_fields(const Error& error);

/// Decodes a message from its fields. Unknown fields are ignored. Errors: kCorrupt for
/// a field that is missing or has an invalid value.
[[nodiscard]] Result<CompileJob> job_from(const Fields& fields);
[[nodiscard]] Result<DescribeRequest> describe_request_from(const Fields& fields);
[[nodiscard]] Result<Hello> hello_from(const Fields& fields);
[[nodiscard]] Result<Progress> progress_from(const Fields& fields);
[[nodiscard]] Result<CompileOutput> output_from(const Fields& fields);
[[nodiscard]] Result<ToolchainDescription> description_from(const Fields& fields);
[[nodiscard]] Result<Error> error_from(const Fields& fields);

}  // namespace kiln::compile
