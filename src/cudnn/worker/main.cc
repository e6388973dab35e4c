// kiln-plan-worker: builds cuDNN execution plans for the pool that started it, for
// devices that need not be present. cuDNN still requires a driver, so one without
// devices is loaded first: cuDNN must never see a real driver here.

#include <chrono>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

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
  return about("cannot open " + path.native(), open_library(path, symbols));
}

/// Opens the driver without devices, then NVRTC, then cuDNN. Each finds the libraries
/// opened before it by name.
Result<void> open_cudnn(const std::filesystem::path& cudnn,
                        const compile::NvrtcPaths& nvrtc) {
  const auto driver = this_library().parent_path() / KILN_NO_DEVICE_DRIVER;
  KILN_TRY(open(driver, LibrarySymbols::kGlobal));
  // If it cannot be opened, cuDNN searches for one itself.
  if (!nvrtc.nvrtc.empty())
    std::ignore = compile::open_nvrtc(nvrtc);
  cudnn_frontend::cudnn_dlhandle = KILN_TRY(open(cudnn, LibrarySymbols::kLocal));
  return {};
}

/// What cuDNN says of itself. It ends this process where it cannot load
/// libcudnn_graph, which has all functions that Kiln calls.
std::string version_of_cudnn() {
  return to_string(attention::decoded(
      static_cast<long>(cudnn_frontend::detail::get_backend_version())));
}

Result<void> check_functions(const compile::LoadedLibrary& graph,
                             const std::vector<std::string>& functions) {
  void* const library = KILN_TRY(open(graph.path, LibrarySymbols::kLocal));
  for (const std::string& name : functions) {
    if (find_symbol(library, name.c_str()) == nullptr)
      return fail(ErrorCode::kUnavailable, "its {} has no {}", graph.path.native(),
                  name);
  }
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
  KILN_TRY(open_cudnn(job.cudnn, job.nvrtc));
  report_phase(compile::BuildPhase::kCompiling);
  const auto begin = Clock::now();
  auto output = KILN_TRY(build(job));
  output.build_time =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  output.cudnn_version = version_of_cudnn();
  output.cudnn = compile::loaded_as(job.cudnn);
  output.nvrtc = compile::loaded_as(job.nvrtc.nvrtc);
  report_phase(compile::BuildPhase::kReading);
  return compile::Reply(std::move(output));
}

Result<compile::Reply> answer(const compile::CudnnRequest& request) {
  report_phase(compile::BuildPhase::kOpening);
  for (const std::string& part : request.loaded)
    std::ignore = open_library(part);  // if it is gone, cuDNN finds none either
  KILN_TRY(open_cudnn(request.cudnn, {}));
  compile::CudnnDescription description;
  description.version = version_of_cudnn();
  description.cudnn = compile::loaded_as(request.cudnn);
  // The one that was loaded first is the one that cuDNN uses.
  description.graph = compile::loaded_named("libcudnn_graph.so");
  if (!description.graph.path.empty())
    KILN_TRY(check_functions(description.graph, request.functions));
  return compile::Reply(std::move(description));
}

template <typename Other>
Result<compile::Reply> answer(const Other& /*request*/) {
  return refuse("kiln-plan-worker builds plans only");
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
