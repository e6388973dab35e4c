// kiln-plan-worker: builds cuDNN execution plans for the pool that started it, for
// devices that need not be present. cuDNN still requires a driver, so one without
// devices is loaded first: cuDNN must never see a real driver here.

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>

#include "attention/cudnn_version.h"
#include "attention/problem_codec.h"
#include "compile/worker/loaded_libraries.h"
#include "compile/worker/nvrtc.h"
#include "compile/worker/worker_loop.h"
#include "cudnn/worker/plan_builder.h"
#include "cudnn/worker/problem_graph.h"
#include "util/open_library.h"
#include "util/this_library.h"
#include "util/try.h"

namespace kiln::plan_worker {
namespace {

using Clock = std::chrono::steady_clock;

Result<void*> open(const std::filesystem::path& path, LibrarySymbols symbols) {
  auto library = open_library(path, symbols);
  if (!library)
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("cannot open {}: {}", path.native(), library.error().message));
  return library;
}

/// Opens the driver without devices, then NVRTC, then cuDNN. Each finds the libraries
/// opened before it by name.
Result<void> open_cudnn(const compile::PlanJob& job) {
  const auto driver = this_library().parent_path() / KILN_NO_DEVICE_DRIVER;
  KILN_TRY(open(driver, LibrarySymbols::kGlobal));
  // If it cannot be opened, cuDNN searches for one itself.
  if (!job.nvrtc.nvrtc.empty())
    std::ignore = compile::open_nvrtc(job.nvrtc);
  cudnn_frontend::cudnn_dlhandle = KILN_TRY(open(job.cudnn, LibrarySymbols::kLocal));
  return {};
}

/// A refusal before there is an engine is a result, too.
compile::PlanOutput refused(std::string what, const Error& error) {
  compile::PlanOutput output;
  output.attempts.push_back({std::move(what), "refused", error.message});
  return output;
}

Result<compile::PlanOutput> build(const compile::PlanJob& job) {
  const auto fields = KILN_TRY(Fields::decode(as_bytes(job.problem)));
  const auto problem = KILN_TRY(attention::problem_from(fields));
  const auto device = KILN_TRY(device_properties(job.device));
  const auto graph = ProblemGraph::make(problem, device, job.capability);
  if (!graph)
    return refused("frontend", graph.error());
  auto built = KILN_TRY(build_plan(problem, **graph, device, job.device));
  compile::PlanOutput output;
  output.attempts = std::move(built.attempts);
  if (built.plan)
    output.plan = encode(*built.plan);
  return output;
}

Result<compile::Reply> answer(const compile::PlanJob& job) {
  report_phase(compile::BuildPhase::kOpening);
  KILN_TRY(open_cudnn(job));
  report_phase(compile::BuildPhase::kCompiling);
  const auto begin = Clock::now();
  auto output = KILN_TRY(build(job));
  output.build_time =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  output.cudnn_version = to_string(attention::decoded(
      static_cast<long>(cudnn_frontend::detail::get_backend_version())));
  output.cudnn = compile::loaded_as(job.cudnn);
  output.nvrtc = compile::loaded_as(job.nvrtc.nvrtc);
  report_phase(compile::BuildPhase::kReading);
  return compile::Reply(std::move(output));
}

template <typename Other>
Result<compile::Reply> answer(const Other& /*request*/) {
  return fail(ErrorCode::kInvalidArgument, "kiln-plan-worker builds plans only");
}

Result<compile::Reply> answer_request(const compile::Request& request) {
  return std::visit([](const auto& message) { return answer(message); }, request);
}

}  // namespace
}  // namespace kiln::plan_worker

int main(int argc, char** argv) {
  return kiln::compile::run_worker("kiln-plan-worker",
                                   {argv, static_cast<std::size_t>(argc)},
                                   kiln::plan_worker::answer_request);
}
