// Resolves a request into what can be built: looks up names, makes parameters
// canonical, and checks the options of a source. Compiles nothing and reads no file.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "device/architecture.h"
#include "kiln/request.h"
#include "kiln/result.h"
#include "render/catalog.h"
#include "request/nvrtc_options.h"

namespace kiln::request {

struct TemplateRequest {
  std::shared_ptr<const render::KernelSpec> kernel;  // never null
  render::CanonicalParameters params;
};

/// What a source is compiled to for a link.
enum class ObjectKind : std::uint8_t {
  kNone,         // nothing: it is loaded as it is
  kRelocatable,  // a cubin
  kLtoIr,        // -dlto
};

/// SourceOptions::target of a call that names no architecture.
inline constexpr std::string_view kDefaultTarget = "default";

/// A source with checked options. Include and macro options stay in place: key/ orders
/// them.
struct SourceRequest {
  SourceOptions source;
  std::optional<device::Target> target{};  // of `source`, for whatever device
  ObjectKind object = ObjectKind::kNone;
  /// It had options about precompiled headers, and has none any more: make one soon.
  bool precompile = false;
  /// Of SourceOptions::as_nvrtc, whose `options` stay as they are; else null. Then
  /// `target` is that of the options, if they name one.
  std::shared_ptr<const NvrtcOptions> as_nvrtc{};
};

/// Several sources, or one that is relocatable, and what is linked with them. The
/// options of `objects` say no longer what they are: -dlto is gone, and the others have
/// --relocatable-device-code=true.
struct LinkRequest {
  std::vector<SourceRequest> objects;  // at least one
  LinkOptions link;
};

using ResolvedRequest = std::variant<TemplateRequest, SourceRequest, LinkRequest>;

/// Errors: kNotFound for an unknown template, kInvalidArgument for a wrong parameter or
/// option; the message names it, what is allowed, and the nearest match.
[[nodiscard]] Result<ResolvedRequest> resolve(const Request& request,
                                              const render::TemplateCatalog& catalog);

/// Errors: kInvalidArgument for a text with a NUL, and for an option that Kiln sets
/// itself or that does more than make the image; kResourceLimit over the size limits.
[[nodiscard]] Result<SourceRequest> resolve_source(SourceOptions source);

}  // namespace kiln::request
