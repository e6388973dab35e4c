// From what was asked to what can be built: names looked up, parameters canonical,
// options of a source sorted out. Nothing is compiled and no file is read.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kiln/request.h"
#include "kiln/result.h"
#include "render/catalog.h"

namespace kiln::request {

struct TemplateRequest {
  std::shared_ptr<const render::KernelSpec> kernel;  // never null
  render::CanonicalParameters params;
};

/// A source whose options are checked. Includes and macros among its options stay where
/// they are: key/ gives them their order.
struct SourceRequest {
  SourceOptions source;
};

using ResolvedRequest = std::variant<TemplateRequest, SourceRequest>;

/// Errors: kNotFound for an unknown template, kInvalidArgument for a wrong parameter or
/// option; the message names it, what is allowed, and the nearest match.
[[nodiscard]] Result<ResolvedRequest> resolve(const Request& request,
                                              const render::TemplateCatalog& catalog);

/// Errors: kInvalidArgument for an option that Kiln sets itself or that has effects
/// beside the image, each with its reason; a name with NUL; over the size limits.
[[nodiscard]] Result<SourceRequest> resolve_source(SourceOptions source);

}  // namespace kiln::request
