// CUDA C++ files as requests, from the options that `kiln compile` and `kiln why`
// share.

#pragma once

#include <string>
#include <vector>

#include "kiln/request.h"
#include "kiln/result.h"
#include "tools/context.h"
#include "tools/option_set.h"

namespace kiln::tools {

struct SourceFileOptions {
  std::vector<std::string> files;
  std::vector<std::string> linked;
  std::vector<std::string> link_options;
  std::vector<std::string> include_dirs;
  std::vector<std::string> defines;
  std::vector<std::string> options;
  std::vector<std::string> names;
  std::string standard;
  bool as_nvrtc = false;
};

/// Declares all but the files.
void add_source_options(OptionSet& cli, SourceFileOptions& options);

/// The link of all files, or the one. Reads them; "-" is standard input. Errors:
/// kInvalidArgument, kResourceLimit, kIo.
[[nodiscard]] Result<Request> make_request(const Context& context,
                                           const SourceFileOptions& options);

}  // namespace kiln::tools
