// The messages of link_job.h as fields; protocol.h frames them.

#pragma once

#include "codec/fields.h"
#include "compile/protocol/link_job.h"
#include "kiln/result.h"

namespace kiln::compile {

[[nodiscard]] Fields to_fields(const LinkJob& job);
[[nodiscard]] Result<LinkJob> link_job_from(const Fields& fields);

}  // namespace kiln::compile
