#include "build_service.h"

#include <fmt/format.h>

#include <utility>

#include "artifact.h"
#include "build_options.h"
#include "key/opened_files.h"
#include "render/embedded_templates.h"
#include "request/first_resolve.h"
#include "request/resolve.h"
#include "util/log.h"
#include "util/try.h"
#include "util/units.h"

// The data path, one named step a line:
//
//   request ─ validate ─ target ─ key ─┬─ memory
//                                      ├─ disk
//                                      └─ render ─ compile worker ─ check ─ publish
//
// prepare() validates, key() finds target and key, fetch() does the rest. service.cc
// has what comes before and after: kernels in memory, and their load.

namespace kiln {
namespace {

std::unique_ptr<cache::Cache> open_cache(const Config& config, const LazyCount& jobs,
                                         const BuildServiceOptions& options) {
  cache::CacheOptions opened = cache_options(config);
  opened.slots = jobs;  // so that cores are asked for once
  opened.make_root = options.make_root;
  return cache::Cache::open(std::move(opened));
}

/// Where hints may be kept: nowhere, if the cache is off.
OwnFolder hint_folder(cache::Cache& cache, const std::filesystem::path& folder) {
  return cache.mode() == cache::Mode::kOff ? OwnFolder() : counted(cache, folder);
}

device::TemplateTargets declared_targets(const PreparedRequest& request) {
  const request::TemplateRequest* wanted = request.as_template();
  if (wanted == nullptr)
    return {};
  // Its limits depend on the parameters: key() asks the kernel itself.
  return {.min = std::nullopt,
          .max = std::nullopt,
          .specific = wanted->kernel->targets().suffixed};
}

constexpr std::chrono::seconds kPatience{3};  // before a wait is worth a word

/// Says whom a build waits for, at longer and longer intervals.
class WaitNotice {
 public:
  explicit WaitNotice(std::string label) : label_(std::move(label)) {}

  void operator()(const cache::OwnerRecord& owner) {
    const auto waited = std::chrono::steady_clock::now() - began_;
    if (waited < next_)
      return;
    next_ *= 2;
    const auto in_phase = owner.heartbeat - owner.phase_started;
    logger().warn("waiting for process {} to build {}: {} for {}", owner.pid, label_,
                  to_string(owner.phase),
                  format_duration(
                      std::chrono::duration_cast<std::chrono::milliseconds>(in_phase)));
  }

 private:
  std::string label_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::duration next_ = kPatience;
};

cache::Phase lock_phase(compile::BuildPhase phase) {
  switch (phase) {
    case compile::BuildPhase::kQueued:
      return cache::Phase::kQueued;
    case compile::BuildPhase::kStarting:
    case compile::BuildPhase::kOpening:
      return cache::Phase::kStarting;
    case compile::BuildPhase::kCompiling:
    case compile::BuildPhase::kReading:
      return cache::Phase::kCompiling;
  }
  return cache::Phase::kStarting;
}

}  // namespace

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kHit:
      return "hit";
    case Outcome::kCompiled:
      return "compiled";
    case Outcome::kWaited:
      return "waited";
  }
  return "unknown";
}

Result<std::unique_ptr<BuildService>> BuildService::open(
    const Config& config, const BuildServiceOptions& options) {
  auto catalog = KILN_TRY(
      render::TemplateCatalog::open(templates::embedded(), config.template_dirs));
  return std::unique_ptr<BuildService>(
      new BuildService(config, options, std::move(catalog)));
}

BuildService::BuildService(const Config& config, const BuildServiceOptions& options,
                           render::TemplateCatalog catalog)
    : config_(config),
      jobs_(build_jobs(config)),
      catalog_(std::move(catalog)),
      cache_(open_cache(config_, jobs_, options)),
      workers_(pool_options(config_, jobs_, *cache_)),
      toolchains_(
          config_, hint_folder(*cache_, cache_->layout().toolchains()),
          [this, stop = options.stop](
              const std::filesystem::path& nvrtc,
              const std::filesystem::path& builtins) -> Result<device::NvrtcFacts> {
            const auto described = workers_.describe({nvrtc, builtins}, stop);
            if (!described) {
              count_failure(described.error());
              return tl::unexpected(described.error());
            }
            return device::NvrtcFacts{{described->major, described->minor},
                                      described->architectures};
          }),
      keys_(hint_folder(*cache_, cache_->layout().memo())) {}

Result<void> BuildService::check_process() const {
  if (fork_count() == forks_)
    return {};
  return fail(ErrorCode::kUnavailable,
              "this process was forked from the one that opened the service: open one "
              "in the child, or start the child with exec");
}

Result<PreparedRequest> BuildService::prepare(const Request& request) const {
  KILN_TRY(check_process());
  auto resolved = KILN_TRY(request::resolve(request, catalog_));
  const auto* wanted = std::get_if<request::TemplateRequest>(&resolved);
  if (wanted != nullptr && !wanted->kernel->has_include())
    return RequestKeys::prepare(std::move(resolved));
  // All copies of one request see the headers that the first of them was resolved with.
  using Pointer = std::shared_ptr<const PreparedRequest>;
  const void* const meaning = wanted == nullptr ? nullptr : wanted->kernel.get();
  return *KILN_TRY(request::FirstResolve::get<PreparedRequest>(
      request, meaning, [&]() -> Result<Pointer> {
        return std::make_shared<const PreparedRequest>(
            KILN_TRY(RequestKeys::prepare(std::move(resolved))));
      }));
}

Result<std::variant<KeyedRequest, device::TargetSkipped>> BuildService::key(
    const PreparedRequest& request, const device::BuildFor& build_for) {
  KILN_TRY(check_process());
  const auto toolchain = KILN_TRY(toolchains_.choose(build_for));
  const auto choice = KILN_TRY(device::choose_target(
      build_for, declared_targets(request), toolchain->toolchain.facts));
  if (const auto* skipped = std::get_if<device::TargetSkipped>(&choice))
    return *skipped;
  if (const request::TemplateRequest* wanted = request.as_template()) {
    if (auto reason =
            wanted->kernel->excluded(wanted->params, capability_of(build_for)))
      return device::TargetSkipped{*std::move(reason)};
  }
  return KILN_TRY(keys_.key(request, std::get<device::Target>(choice), toolchain));
}

Result<Fetched> BuildService::fetch(const KeyedRequest& request,
                                    const std::stop_token& stop) {
  KILN_TRY(check_process());
  if (auto fetched = find_in_memory(request.key))
    return *std::move(fetched);
  if (auto object = find_on_disk(request))
    return Fetched{std::move(object), Outcome::kHit, std::nullopt};
  return build_once(request, stop);
}

std::optional<Fetched> BuildService::find_in_memory(const cache::Digest& key) {
  const MutexLock lock(mutex_);
  const auto found = unstored_.find(key);
  return found == unstored_.end() ? std::nullopt : std::optional(found->second);
}

BuildService::ObjectPointer BuildService::find_on_disk(const KeyedRequest& request) {
  std::optional<cache::StoredObject> object =
      cache_->find(request.key, to_string(request.target));
  if (!object)
    return nullptr;
  return std::make_shared<const cache::StoredObject>(*std::move(object));
}

Result<Fetched> BuildService::build_once(const KeyedRequest& request,
                                         const std::stop_token& stop) {
  if (config_.no_jit) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} for {} is not in the cache {}, and KILN_NO_JIT forbids "
                            "building it; warm the cache first",
                            request.request.label(), to_string(request.target),
                            cache_->layout().root().native()));
  }
  if (!request.toolchain->toolchain.installed())
    return tl::unexpected(device::missing_nvrtc(request.toolchain->toolchain));
  auto outcome =
      builds_.run(request.key, stop, [&] { return build_locked(request, stop); });
  if (outcome.led || !outcome.result)
    return std::move(outcome.result);
  if (!outcome.result->is_as_keyed)
    return build_locked(request, stop);  // that one was another request's
  if (outcome.result->outcome == Outcome::kCompiled)
    outcome.result->outcome = Outcome::kWaited;
  return std::move(outcome.result);
}

/// One build a key among the processes of this machine, as far as locks help.
Result<Fetched> BuildService::build_locked(const KeyedRequest& request,
                                           const std::stop_token& stop) {
  // Another thread may have finished between our look and our turn.
  if (auto fetched = find_in_memory(request.key))
    return *std::move(fetched);
  ObjectPointer appeared;
  const auto look_again = [&] {
    if (std::optional<cache::StoredObject> object =
            cache_->look_again(request.key, to_string(request.target)))
      appeared = std::make_shared<const cache::StoredObject>(*std::move(object));
    return appeared != nullptr;
  };
  auto acquired = cache_->lock({.key = request.key,
                                .look_again = look_again,
                                .stop = stop,
                                .deadline = std::nullopt,
                                .on_wait = WaitNotice(request.request.label())});
  switch (acquired.outcome) {
    case cache::KeyLock::Outcome::kAppeared:
      return Fetched{std::move(appeared), Outcome::kWaited, std::nullopt};
    case cache::KeyLock::Outcome::kCancelled:
      return fail(ErrorCode::kCancelled, "stopped while another process was building " +
                                             request.request.label());
    case cache::KeyLock::Outcome::kBypassed:
      logger().log(
          acquired.waited < kPatience ? spdlog::level::debug : spdlog::level::warn,
          "building {} without waiting any longer: {}", request.request.label(),
          acquired.reason);
      break;
    case cache::KeyLock::Outcome::kHeld:
      break;
  }
  return build(request, stop, acquired.lock);
}

Result<Fetched> BuildService::build(const KeyedRequest& request,
                                    const std::stop_token& stop, cache::KeyLock& lock) {
  const auto began = std::chrono::system_clock::now();
  compile::CompileJob job = KILN_TRY(RequestKeys::job(request));
  job.time_limit = config_.compile_timeout;
  bool begun = false;
  const auto on_phase = [&](compile::BuildPhase phase) {
    begun = true;
    if (lock.held())
      lock.enter(lock_phase(phase));
  };
  const auto output = workers_.compile(job, stop, on_phase);
  if (!output) {
    if (begun)  // else no worker was lost, whatever the error is
      count_failure(output.error());
    return tl::unexpected(output.error());
  }
  KILN_TRY(check_output(request, *output));
  auto object = std::make_shared<const cache::StoredObject>(
      KILN_TRY(make_object(request, keys_.preimage(request), job.source, *output)));
  cache_->counters().add(cache::Counter::kCompiled);
  if (auto mismatch = find_mismatch(request, *output, began))
    return Fetched{std::move(object), Outcome::kCompiled, std::move(mismatch), false};
  if (lock.held())
    lock.enter(cache::Phase::kPublishing);
  return publish(request, object);
}

Fetched BuildService::publish(const KeyedRequest& request,
                              const ObjectPointer& object) {
  Fetched fetched{object, Outcome::kCompiled, cache_->publish(*object).error};
  if (fetched.not_stored) {
    const MutexLock guard(mutex_);
    unstored_.emplace(request.key, Fetched{object, Outcome::kHit, fetched.not_stored});
  }
  return fetched;
}

std::optional<Error> BuildService::find_mismatch(
    const KeyedRequest& request, const compile::CompileOutput& output,
    std::chrono::system_clock::time_point began) {
  if (auto other = other_toolchain(request, output)) {
    cache_->counters().add(cache::Counter::kToolchainNotAsKeyed);
    logger().warn("{}", other->message);
    return other;
  }
  const compile::FileReport& files = output.files;
  const auto unkeyed = key::find_unkeyed(
      *request.headers, {files.opened, began, files.missed, files.is_whole});
  if (unkeyed) {
    cache_->counters().add(cache::Counter::kInputsNotAsKeyed);
    Error error{ErrorCode::kInvalidArgument,
                fmt::format("{} is not stored: {}", request.request.label(),
                            to_string(*unkeyed))};
    logger().warn("{}", error.message);
    return error;
  }
  return std::nullopt;
}

void BuildService::count_failure(const Error& error) {
  cache::Counters& counters = cache_->counters();
  switch (error.code) {
    case ErrorCode::kCompileFailed:
      counters.add(cache::Counter::kCompileFailed);
      break;
    case ErrorCode::kWorkerCrashed:
      counters.add(cache::Counter::kWorkerCrashed);
      break;
    case ErrorCode::kTimeout:
    case ErrorCode::kResourceLimit:
      counters.add(cache::Counter::kWorkerKilled);
      break;
    default:
      break;
  }
}

}  // namespace kiln
