#include "compile/build_watch.h"

#include <fmt/format.h>

#include "compile/reproduction.h"
#include "util/units.h"

namespace kiln::compile {
namespace {

std::string seconds_text(std::chrono::milliseconds duration) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(duration).count());
}

struct Verdict {
  ErrorCode code;
  std::string text;
};

Verdict verdict_on(const Error& cause, const CompileJob& job, const BuildWatch& watch) {
  const auto when = fmt::format("after {} while {}", seconds_text(watch.elapsed()),
                                to_string(watch.phase()));
  constexpr std::string_view kRemedy = "raise the limit or simplify the source";
  switch (cause.code) {
    case ErrorCode::kTimeout:
      return {cause.code, fmt::format("was stopped {}: over its limit of {}; {}", when,
                                      seconds_text(job.time_limit), kRemedy)};
    case ErrorCode::kResourceLimit:
      return {cause.code,
              fmt::format("was stopped {}: over its memory limit of {}; {}", when,
                          format_size(job.memory_limit_bytes), kRemedy)};
    default:
      return {ErrorCode::kWorkerCrashed,
              fmt::format("failed {}: {}", when, cause.message)};
  }
}

}  // namespace

std::string build_name(const CompileJob& job) {
  return fmt::format("the build of {} for {}",
                     job.label.empty() ? kProgramName : job.label,
                     device::to_string(job.target));
}

Error ended_build(const Error& cause, const CompileJob& job, const BuildWatch& watch,
                  const OwnFolder& reproductions) {
  const auto build = build_name(job);
  if (cause.code == ErrorCode::kCancelled) {
    return {cause.code,
            fmt::format("{} was cancelled while {}", build, to_string(watch.phase()))};
  }
  const auto [code, text] = verdict_on(cause, job, watch);
  if (reproductions.empty())
    return {code, fmt::format("{} {}", build, text)};
  const auto saved = save_reproduction(reproductions, job);
  return {code, fmt::format("{} {}; {}", build, text,
                            saved ? "saved in " + saved->native()
                                  : "it could not be saved: " + saved.error().message)};
}

}  // namespace kiln::compile
