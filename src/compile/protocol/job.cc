#include "compile/protocol/job.h"

namespace kiln::compile {

std::string_view to_string(BuildPhase phase) {
  switch (phase) {
    case BuildPhase::kQueued:
      return "queued";
    case BuildPhase::kStarting:
      return "starting";
    case BuildPhase::kOpening:
      return "opening";
    case BuildPhase::kCompiling:
      return "compiling";
    case BuildPhase::kReading:
      return "reading";
  }
  return "unknown";
}

const std::vector<std::string>& log_options() {
  static const auto* const options = new std::vector<std::string>{"--ptxas-options=-v"};
  return *options;
}

}  // namespace kiln::compile
