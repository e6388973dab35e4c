#include "library/disabled_kernels.h"

#include <fnmatch.h>

#include <algorithm>

#include "util/log.h"
#include "util/nearest.h"
#include "util/try.h"

namespace kiln {
namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace

DisabledKernels::DisabledKernels(const Config& config,
                                 const render::TemplateCatalog& catalog)
    : patterns_(config.disabled), set_by_(config.disabled_by) {
  if (patterns_.empty())
    return;
  const std::vector<std::string> names = catalog.names();
  for (const std::string& pattern : patterns_) {
    if (std::none_of(names.begin(), names.end(),
                     [&](const std::string& name) { return matches(pattern, name); }))
      log(LogLevel::kWarning, {set_by_.name, ": there is no kernel '", pattern, "'",
                               did_you_mean(pattern, names)});
  }
}

Result<void> DisabledKernels::check(const Request& request) const {
  if (!request.is_template())
    return {};
  for (const std::string& pattern : patterns_) {
    if (matches(pattern, request.name()))
      return fail(ErrorCode::kUnavailable, "{} is switched off by {} ({})",
                  request.name(), set_by_.name, pattern);
  }
  return {};
}

}  // namespace kiln
