// KILN_DISABLE: kernels that a program shall do without, switched off from outside it.

#pragma once

#include <string>
#include <vector>

#include "kiln/request.h"
#include "kiln/result.h"
#include "render/catalog.h"

namespace kiln {

/// Thread safety: immutable.
class DisabledKernels {
 public:
  /// `patterns` are names of kernels, or have the shell's * ? []. One that no kernel of
  /// `catalog` has is told in the log with its nearest match: misspelled, a kernel
  /// would stay on without a word.
  DisabledKernels(std::vector<std::string> patterns,
                  const render::TemplateCatalog& catalog);

  /// Errors: kUnavailable where the request's kernel is switched off. Sources never
  /// are.
  [[nodiscard]] Result<void> check(const Request& request) const;

 private:
  const std::vector<std::string> patterns_;
};

}  // namespace kiln
