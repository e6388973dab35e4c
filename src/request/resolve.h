// Resolves a request into what can be built: looks up names, makes parameters
// canonical, and checks the options of a source. Compiles nothing and reads no file.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "device/architecture.h"
#include "kiln/request.h"
#include "kiln/result.h"
#include "render/catalog.h"

namespace kiln::request {

struct TemplateRequest {
  std::shared_ptr<const render::KernelSpec> kernel;  // never null
  render::CanonicalParameters params;
};

/// A source with checked options. Include and macro options stay in place: key/ orders
/// them.
struct SourceRequest {
  SourceOptions source;
  std::optional<device::Target> target{};  // of `source`, for whatever device
};

using ResolvedRequest = std::variant<TemplateRequest, SourceRequest>;

/// Errors: kNotFound for an unknown template, kInvalidArgument for a wrong parameter or
/// option; the message names it, what is allowed, and the nearest match.
[[nodiscard]] Result<ResolvedRequest> resolve(const Request& request,
                                              const render::TemplateCatalog& catalog);

/// Errors: kInvalidArgument for a text with a NUL, and for an option that Kiln sets
/// itself or that does more than make the image; kResourceLimit over the size limits.
[[nodiscard]] Result<SourceRequest> resolve_source(SourceOptions source);

}  // namespace kiln::request
