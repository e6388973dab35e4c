// Expands what `warm` is told to build, NAME:p=v,... or whole sets, into requests.

#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/request.h"
#include "kiln/result.h"
#include "render/catalog.h"
#include "request/resolve.h"

namespace kiln::request {

/// `NAME` or `NAME:p=v,q=w`, parsed but not looked up.
struct TemplatePattern {
  std::string name;
  Parameters params;
};

/// Errors: kInvalidArgument for an empty name, a part without `=`, or a parameter given
/// twice.
[[nodiscard]] Result<TemplatePattern> parse_template_pattern(std::string_view text);

/// The inverse: "NAME:p=v,q=w" with parameters in order of their names, or "NAME".
[[nodiscard]] std::string format_template(std::string_view name,
                                          const Parameters& params);

/// A growing list of requests in which equal ones count once.
/// Thread safety: none.
class Selection {
 public:
  explicit Selection(const render::TemplateCatalog& catalog) : catalog_(catalog) {}

  /// The default set of every kernel. Errors: as TemplateCatalog::kernels.
  [[nodiscard]] Result<void> add_all();
  /// The quick set of every kernel. Errors: as TemplateCatalog::kernels.
  [[nodiscard]] Result<void> add_quick();
  /// `text` as for parse_template_pattern; its name is a kernel's, or a family's for
  /// all its kernels. A parameter left out takes every value of the default set. It is
  /// an error if a kernel of the family does not have a given parameter. Errors:
  /// kNotFound, kInvalidArgument; then nothing is added.
  [[nodiscard]] Result<void> add_template(std::string_view text);
  void add(TemplateRequest request);

  /// In the order added.
  [[nodiscard]] const std::vector<TemplateRequest>& requests() const {
    return requests_;
  }

 private:
  const render::TemplateCatalog& catalog_;
  std::vector<TemplateRequest> requests_;
  std::set<std::string> seen_;  // format_template() of each
};

}  // namespace kiln::request
