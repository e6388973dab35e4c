#include "compile/protocol/job.h"

#include "util/words.h"

namespace kiln::compile {

std::string_view to_string(BuildPhase phase) {
  return word_of(phase, {"queued", "starting", "opening", "compiling", "reading"});
}

const std::vector<std::string>& log_options() {
  static const auto* const options = new std::vector<std::string>{"--ptxas-options=-v"};
  return *options;
}

std::optional<NvrtcFailure> nvrtc_failure(const Error& error) {
  const std::string_view text = error.message;
  const std::size_t colon = text.find(": NVRTC_ERROR_");
  const std::size_t end = text.find('\n', colon);
  if (colon == std::string_view::npos || end == std::string_view::npos)
    return std::nullopt;
  const std::size_t name = colon + 2;
  return NvrtcFailure{std::string(text.substr(name, end - name)),
                      std::string(text.substr(end + 1))};
}

}  // namespace kiln::compile
