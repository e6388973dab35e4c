#include "compile/pool/build_watch.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <type_traits>

#include "compile/pool/reproduction.h"
#include "util/units.h"

namespace kiln::compile {
namespace {

std::string seconds_text(std::chrono::milliseconds duration) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(duration).count());
}

/// The limit is wall time: a busy machine uses it up.
std::string share_text(std::optional<double> share) {
  constexpr double kMuch = 0.8;
  constexpr double kNone = 0.005;
  if (!share)
    return "";
  if (*share < kNone)
    return ", in which the worker used no core: somebody stopped it, or it waits for a "
           "file";
  return fmt::format(
      ", in which the worker had {:.0f} % of a core{}", *share * 100,
      *share < kMuch ? ", so run fewer builds at a time (KILN_JOBS)" : "");
}

template <typename Job>
Error worker_failure(const Error& cause, const Job& job, const BuildWatch& watch) {
  const auto when = fmt::format("after {} while {}", seconds_text(watch.elapsed()),
                                to_string(watch.phase()));
  constexpr std::string_view kOrSimplify =
      std::is_same_v<Job, CompileJob> ? " or simplify the source" : "";
  switch (cause.code) {
    case ErrorCode::kTimeout:
      return {cause.code, fmt::format("was stopped {}: over its limit of {}{}; raise "
                                      "the limit (KILN_COMPILE_TIMEOUT){}",
                                      when, seconds_text(job.time_limit),
                                      share_text(watch.share()), kOrSimplify)};
    case ErrorCode::kResourceLimit:
      return {cause.code,
              fmt::format("was stopped {}: over its memory limit of {}; raise the "
                          "limit (KILN_WORKER_MEMORY){}",
                          when, format_size(job.memory_limit_bytes), kOrSimplify)};
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

std::string build_name(const PlanJob& job) {
  return fmt::format(
      "the plan of {} for {}", job.label,
      device::to_string(device::Architecture{.capability = job.capability}));
}

std::string build_name(const LinkJob& job) {
  return fmt::format("the link of {} for {}", job.label, device::to_string(job.target));
}

template <typename Job>
Error ended_build(const Error& cause, const Job& job, const BuildWatch& watch,
                  const OwnFolder& reproductions) {
  const auto build = build_name(job);
  if (cause.code == ErrorCode::kCancelled) {
    return {cause.code,
            fmt::format("{} was cancelled while {}", build, to_string(watch.phase()))};
  }
  Error error = worker_failure(cause, job, watch);
  error.message.insert(0, build + " ");
  error.from_outside = cause.from_outside;
  if (cause.from_outside)
    error.message += "; the first try ended in the same way";
  if (reproductions.empty())
    return error;
  const auto saved = save_reproduction(reproductions, job);
  error.message += saved ? "; saved in " + saved->native()
                         : "; the build could not be saved: " + saved.error().message;
  return error;
}

template Error ended_build(const Error&, const CompileJob&, const BuildWatch&,
                           const OwnFolder&);
template Error ended_build(const Error&, const PlanJob&, const BuildWatch&,
                           const OwnFolder&);
template Error ended_build(const Error&, const LinkJob&, const BuildWatch&,
                           const OwnFolder&);

}  // namespace kiln::compile
