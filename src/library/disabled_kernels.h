// KILN_DISABLE: switches kernels off from outside a program.

#pragma once

#include <string>
#include <vector>

#include "build/config.h"
#include "kiln/request.h"
#include "kiln/result.h"
#include "render/catalog.h"

namespace kiln {

/// Thread safety: immutable.
class DisabledKernels {
 public:
  /// `config.disabled` are kernel names, which may contain the shell's * ? []. A
  /// pattern that matches no kernel of `catalog` is logged with the nearest name: a
  /// misspelled name would otherwise leave its kernel on without notice.
  DisabledKernels(const Config& config, const render::TemplateCatalog& catalog);

  /// Errors: kUnavailable, if the request's kernel is switched off. Sources never are.
  [[nodiscard]] Result<void> check(const Request& request) const;

 private:
  const std::vector<std::string> patterns_;
  const SetBy set_by_;
};

}  // namespace kiln
