#include "cudnn/plan_service.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "attention/evaluate.h"
#include "attention/plan_binding.h"
#include "attention/problem_codec.h"
#include "build/build_options.h"
#include "cache/unix_time.h"
#include "kiln/version.h"
#include "util/library_search.h"
#include "util/log.h"
#include "util/try.h"

// The same path as in build_service.cc:
//
//   problem ─ key ─┬─ memory
//                  ├─ disk
//                  ├─ seeds
//                  ├─ remotes
//                  └─ plan worker ─ check ─ publish

namespace kiln {
namespace {

constexpr std::string_view kKind = "cudnn_plan";
constexpr std::string_view kSchema = "1";
constexpr const char* kPlanWorker = "kiln-plan-worker";

compile::WorkerSearch worker_search(const Config& config) {
  compile::WorkerSearch search;
  search.name = kPlanWorker;
  // The setting names the compile worker; the plan worker of that build is beside it.
  if (config.worker)
    search.path = config.worker->parent_path() / kPlanWorker;
  search.set_by = config.worker_by.name;
  return search;
}

compile::PoolOptions plan_pool(BuildService& service) {
  compile::PoolOptions options =
      pool_options(service.config(), service.jobs(), service.cache());
  options.worker = worker_search(service.config());
  return options;
}

/// A boolean bias becomes the contiguous one that a call writes for cuDNN.
void add_boolean(attention::Problem& problem) {
  const auto [batches, heads, rows] = bias_sizes(problem);
  const std::int64_t head = rows * problem.skv;
  problem.bias_kind = attention::Bias::kPostScale;
  problem.bias = {.batch = batches == 1 ? 0 : heads * head,
                  .head = heads == 1 ? 0 : head,
                  .sequence = rows == 1 ? 0 : problem.skv,
                  .dim = 1};
}

/// Those of a dimension of 1 lead nowhere.
void simplify_bias(attention::Problem& problem) {
  attention::Problem without = problem;
  without.bias = {};
  const attention::Strides usual = bias_strides(without);
  attention::Strides& bias = problem.bias;
  if (problem.batch == 1)
    bias.batch = usual.batch;
  if (problem.heads == 1)
    bias.head = usual.head;
  if (problem.sq == 1)
    bias.sequence = usual.sequence;
  if (bias == usual)
    bias = {};
}

/// The problem without the options that no plan depends on: training means only that
/// statistics are written, and a plan is the same with and without capture.
attention::Problem as_built(attention::Problem problem) {
  if (problem.pass == attention::Pass::kForward) {
    problem.stats = problem.stats || problem.training;
    problem.training = false;
    problem.deterministic = false;  // every forward pass is deterministic
  } else {
    problem.stats = true;
  }
  problem.capture = false;
  if (problem.bias_kind == attention::Bias::kBoolean)
    add_boolean(problem);
  if (problem.bias != attention::Strides{})
    simplify_bias(problem);
  // A window that covers the longest sequence is no window.
  const std::int64_t longest = std::max(problem.sq, problem.skv);
  for (std::int64_t* const side : {&problem.window_left, &problem.window_right})
    if (*side >= longest)
      *side = -1;
  return problem;
}

std::string target_of(const device::DeviceProperties& device) {
  return to_string(device::Target{{device.capability()}, device::ImageKind::kCubin});
}

cache::Metadata metadata_of(const KeyedPlan& keyed, const attention::Plan& plan,
                            const compile::PlanOutput& output) {
  // cuDNN says nothing of the rest.
  cache::Metadata metadata;
  auto& [template_name, params, arch, toolchain, toolchain_build_ids, producer,
         created_ns, compile_ms, registers, shared_bytes, spill_bytes, entry_points,
         variables, min_driver, program, program_in] = metadata;
  template_name = PlanService::name_of(keyed.problem);
  params = attention::shown_fields(keyed.problem).list();
  arch = to_string(keyed.device.capability());
  toolchain = "cudnn-" + to_string(keyed.version);
  toolchain_build_ids = {output.cudnn.build_id};
  if (!output.nvrtc.build_id.empty())
    toolchain_build_ids.push_back(output.nvrtc.build_id);
  producer = version();
  created_ns = cache::unix_now_ns();
  compile_ms = static_cast<std::uint64_t>(output.build_time.count());
  for (const attention::PlanKernel& kernel : plan.kernels)
    entry_points.push_back({kernel.name, kernel.name});
  return metadata;
}

/// Whether the problem itself was refused, and not for a temporary lack of memory, say.
bool is_lasting(const std::vector<compile::PlanAttempt>& attempts) {
  return std::ranges::none_of(attempts, [](const compile::PlanAttempt& each) {
    return each.status.find("ALLOCATION_FAILED") != std::string::npos ||
           each.status.find("ALLOC_FAILED") != std::string::npos;
  });
}

/// Checks that the plan is the one that was requested: the worker is not trusted.
Result<attention::Plan> checked_plan(const KeyedPlan& keyed,
                                     const compile::PlanOutput& output) {
  auto plan = KILN_TRY(attention::decode_plan(output.plan));
  KILN_TRY(attention::check_fully(plan));
  if (const auto difference = attention::describe_difference(plan.bound, keyed.bound);
      !difference.empty())
    return fail(ErrorCode::kCorrupt, "the plan of {} is for another device: {}",
                keyed.label, difference);
  return plan;
}

/// What a worker wrote before its end may be several lines.
std::string in_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

FetchedPlan plan_of(Fetched fetched, std::vector<compile::PlanAttempt> attempts = {}) {
  return {std::move(fetched), std::move(attempts)};
}

}  // namespace

std::string to_string(const std::vector<compile::PlanAttempt>& attempts) {
  std::vector<std::string> lines;
  for (const compile::PlanAttempt& each : attempts)
    lines.push_back(fmt::format("{}: {}{}{}", each.what, each.status,
                                each.message.empty() ? "" : " ", each.message));
  return fmt::format("{}", fmt::join(lines, "; "));
}

PlanService::PlanService(BuildService& service, std::stop_token closing)
    : service_(service), closing_(std::move(closing)), workers_(plan_pool(service)) {}

Result<std::optional<PlanService::AskedCudnn>> PlanService::ask_library() {
  const Config& config = service_.config();
  const auto found = KILN_TRY(attention::find_cudnn(
      config.cudnn.value_or(""), LibraryPlaces::of_process(), config.cudnn_by.name));
  if (found.empty())
    return std::nullopt;
  const std::filesystem::path& path = found.front().path;
  return KILN_TRY(questions_.run(path, closing_, [&] { return ask(path); }).result);
}

/// cuDNN's way to fail is to end the process: a worker calls it first. Failures are
/// remembered as well, since each call of attention would wait for the same; but not
/// that the worker was killed, which says nothing of cuDNN.
Result<PlanService::AskedCudnn> PlanService::ask(const std::filesystem::path& cudnn) {
  {
    const MutexLock lock(mutex_);
    if (const auto known = asked_.find(cudnn); known != asked_.end())
      return known->second;
  }
  auto described = workers_.describe(
      compile::CudnnRequest{.cudnn = cudnn,
                            .loaded = attention::loaded_cudnn_parts(),
                            .functions = attention::cudnn_functions()},
      closing_);
  if (!described && described.error().code == ErrorCode::kCancelled)
    return tl::unexpected(std::move(described).error());
  const bool was_killed = !described && described.error().from_outside;
  if (!described)
    service_.builds().count_failure(described.error());
  auto asked = described ? Result<AskedCudnn>(AskedCudnn{cudnn, *std::move(described)})
                         : fail(ErrorCode::kUnavailable,
                                in_one_line(std::move(described).error().message));
  if (was_killed)
    return asked;
  const MutexLock lock(mutex_);
  return asked_.emplace(cudnn, std::move(asked)).first->second;
}

Result<std::optional<attention::CudnnLibrary>> PlanService::find_library() {
  {
    const MutexLock lock(mutex_);
    if (library_)
      return library_;
  }
  const auto asked = KILN_TRY(ask_library());
  if (!asked)
    return std::nullopt;
  // Two threads may open it at once; both get the same.
  const auto opened =
      KILN_TRY(attention::CudnnLibrary::open(asked->path, asked->is.graph.path));
  const MutexLock lock(mutex_);
  if (!library_)
    library_ = opened;
  return library_;
}

Result<attention::CudnnLibrary> PlanService::library() {
  const auto found = KILN_TRY(find_library());
  if (!found)
    return fail(ErrorCode::kUnavailable, std::string(attention::kNoCudnn));
  return *found;
}

Result<KeyedPlan> PlanService::key(const attention::Problem& problem,
                                   const device::DeviceProperties& device) {
  const attention::CudnnLibrary cudnn = KILN_TRY(library());
  KeyedPlan plan;
  plan.version = cudnn.version();
  if (plan.version < attention::kFirstCudnn)
    return fail(ErrorCode::kUnavailable,
                "a plan for a device's properties needs cuDNN >= {0}; found {1}; "
                "upgrade cuDNN to {0} or later",
                to_string(attention::kFirstCudnn), to_string(plan.version));
  plan.cudnn = cudnn.path();
  plan.problem = as_built(problem);
  plan.device = device;
  plan.bound = KILN_TRY(attention::binding_of(device.cudnn_json()));
  plan.label = "attention " + to_string(plan.problem);
  plan.key = preimage(plan).digest();
  return plan;
}

Result<void> PlanService::remove(const KeyedPlan& plan) {
  return service_.builds().remove(plan.key);
}

Result<std::filesystem::path> PlanService::find_worker(const Config& config) {
  return compile::find_worker(worker_search(config));
}

std::string_view PlanService::name_of(const attention::Problem& problem) {
  return problem.pass == attention::Pass::kForward ? "cudnn_attention_fwd"
                                                   : "cudnn_attention_bwd";
}

Fields PlanService::preimage(const KeyedPlan& plan) {
  // Of the device a plan depends on what is bound; `cudnn` is where the library lies.
  const auto& [problem, device, bound, cudnn, plan_version, key, label] = plan;
  Fields fields;
  fields.add("kind", kKind);
  fields.add("schema", kSchema);
  fields.add("frontend", KILN_CUDNN_FRONTEND_VERSION);
  fields.add("cudnn", to_string(plan_version));
  for (const Field& field : attention::to_fields(problem).list())
    fields.add(field.label, field.value);
  for (const auto& [name, values] : bound)
    fields.add("device." + name, fmt::format("{}", fmt::join(values, ",")));
  return fields;
}

Compared PlanService::compared(const KeyedPlan& plan) {
  return {preimage(plan), {.template_name = std::string(name_of(plan.problem))}};
}

Result<FetchedPlan> PlanService::fetch(const KeyedPlan& plan,
                                       const std::stop_token& stop,
                                       std::optional<int> device) {
  const auto began = std::chrono::steady_clock::now();
  auto fetched = find_or_build(plan, stop);
  if (service_.journal() == nullptr || (fetched && fetched->object == nullptr))
    return fetched;  // a refusal by cuDNN is an answer
  std::string why = service_.tell(
      {.key = &plan.key,
       .name = plan.label,
       .arch = to_string(plan.device.capability()),
       .began = began,
       .device = device},
      fetched ? Result<Fetched>(*fetched) : tl::unexpected(fetched.error()),
      [&] { return compared(plan); });
  if (fetched)
    fetched->why_built = std::move(why);
  return fetched;
}

Result<FetchedPlan> PlanService::find_or_build(const KeyedPlan& plan,
                                               const std::stop_token& stop) {
  const std::string target = target_of(plan.device);
  CachedBuilds& builds = service_.builds();
  if (auto found = builds.find(plan.key, target))
    return plan_of(*std::move(found));
  if (auto refusal = find_refusal(plan.key))
    return plan_of({.object = nullptr, .tier = cache::Tier::kMemory},
                   *std::move(refusal));
  if (const auto may_build = service_.check_may_build(plan.label, target); !may_build) {
    auto found = KILN_TRY(builds.find_remote({.key = plan.key,
                                              .target = target,
                                              .label = plan.label,
                                              .remotes = Remotes::kPatiently},
                                             stop));
    KILN_TRY(found ? Result<void>() : may_build);
    return plan_of(*std::move(found));
  }
  Attempts attempts;
  auto built = builds.build({.key = plan.key,
                             .target = target,
                             .label = plan.label,
                             .build =
                                 [&](const std::stop_token& stopped,
                                     const compile::ProgressCallback& on_phase) {
                                   return build(plan, stopped, on_phase, attempts);
                                 },
                             .whom =
                                 [](const Error& error) {
                                   // Only who built knows what a refusal means.
                                   return error.code == ErrorCode::kCompileFailed
                                              ? Answers::kThisProcess
                                              : Answers::kEverybody;
                                 }},
                            stop);
  if (built)
    return plan_of(*std::move(built), std::move(attempts));
  // A refusal ends a build like a failure. Threads that waited for the build find the
  // refusal here, too.
  if (auto refusal = find_refusal(plan.key))
    return plan_of({.object = nullptr, .outcome = FetchOutcome::kCompiled},
                   *std::move(refusal));
  return tl::unexpected(std::move(built).error());
}

std::optional<PlanService::Attempts> PlanService::find_refusal(const Digest& key) {
  const MutexLock lock(mutex_);
  const auto found = refusals_.find(key);
  return found == refusals_.end() ? std::nullopt : std::optional(found->second);
}

Result<compile::PlanJob> PlanService::job(const KeyedPlan& plan) {
  compile::PlanJob job;
  auto& [label, flags, problem, device, capability, cudnn, nvrtc, time_limit,
         memory_limit] = job;  // the pool's limit of memory
  label = plan.label;
  flags = attention::flags_of(plan.problem);
  problem = as_text(attention::to_fields(plan.problem).encode());
  device = plan.device.cudnn_json();
  capability = plan.device.capability();
  cudnn = plan.cudnn;
  time_limit = service_.config().compile_timeout;
  // If there is none, cuDNN searches for one itself.
  if (const auto chosen = service_.toolchains().choose(std::nullopt);
      chosen && (*chosen)->toolchain.installed())
    nvrtc = {(*chosen)->toolchain.nvrtc, (*chosen)->toolchain.builtins};
  return job;
}

Result<NewArtifact> PlanService::build(const KeyedPlan& keyed,
                                       const std::stop_token& stop,
                                       const compile::ProgressCallback& on_phase,
                                       Attempts& attempts) {
  const compile::PlanJob job = KILN_TRY(this->job(keyed));
  const auto output = KILN_TRY(service_.builds().ask_worker(
      on_phase, [&](const compile::ProgressCallback& watched) {
        return workers_.build_plan(job, stop, watched);
      }));
  attempts = output.attempts;
  if (output.plan.empty()) {
    if (is_lasting(output.attempts) &&
        output.cudnn_version == to_string(keyed.version)) {
      const MutexLock lock(mutex_);
      refusals_[keyed.key] = output.attempts;
    }
    return fail(ErrorCode::kCompileFailed, "cuDNN {} has no plan of {} for {}: {}",
                to_string(keyed.version), keyed.label, keyed.device.name,
                to_string(output.attempts));
  }
  const auto plan = KILN_TRY(checked_plan(keyed, output));
  auto object =
      KILN_TRY(cache::StoredObject::make({.kind = cache::Kind::kPlan,
                                          .target = target_of(keyed.device),
                                          .metadata = metadata_of(keyed, plan, output),
                                          .preimage = preimage(keyed),
                                          .payload = output.plan,
                                          .log = to_string(output.attempts) + "\n",
                                          .source = job.flags + "\n",
                                          .ptx = {}}));
  std::optional<Error> mismatch;
  if (plan.cudnn != keyed.version || output.cudnn_version != to_string(keyed.version)) {
    mismatch =
        Error{ErrorCode::kUnavailable,
              fmt::format("{} is not stored: the worker met cuDNN {}, where {} was "
                          "expected; look at LD_LIBRARY_PATH, or set KILN_CUDNN",
                          keyed.label, output.cudnn_version, to_string(keyed.version))};
    service_.cache().counters().add(cache::Counter::kToolchainNotAsKeyed);
    log(LogLevel::kWarning, {mismatch->message});
  }
  return NewArtifact{std::make_shared<const cache::StoredObject>(std::move(object)),
                     std::move(mismatch)};
}

}  // namespace kiln
