#include "build/build_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "build/artifact.h"
#include "build/build_options.h"
#include "build/dead_mounts.h"
#include "build/entry_label.h"
#include "build/remote_setup.h"
#include "build/stored_source.h"
#include "compile/pool/worker_path.h"
#include "device/compatibility.h"
#include "key/header_hint.h"
#include "key/opened_files.h"
#include "render/embedded_templates.h"
#include "request/first_resolve.h"
#include "request/resolve.h"
#include "request/source_hint.h"
#include "toolchain/nvrtc_wheels.h"
#include "util/either_stop.h"
#include "util/log.h"
#include "util/try.h"

// The data path, one named step a line:
//
//   request ─ validate ─ target ─ key ─┬─ memory
//                                      ├─ disk
//                                      ├─ seeds
//                                      ├─ remotes
//                                      └─ render ─ compile worker ─ check ─ publish
//
// prepare() validates, key() finds target and key, fetch() does the rest. service.cc
// does what comes before and after: it finds kernels in memory, and loads them.

namespace kiln {
namespace {

std::unique_ptr<cache::Cache> open_cache(const Config& config, const LazyCount& jobs,
                                         const BuildServiceOptions& options) {
  cache::CacheOptions opened = cache_options(config);
  opened.slots = jobs;  // so that the cores are counted once
  opened.make_root = options.make_root;
  opened.warns_when_off = options.warns_when_off;
  if (options.may_be_elsewhere)
    opened.temporary_dir = "/tmp";
  return cache::Cache::open(std::move(opened));
}

compile::PoolOptions worker_options(const Config& config, const LazyCount& jobs,
                                    cache::Cache& cache,
                                    const BuildServiceOptions& options) {
  auto workers = pool_options(config, jobs, cache);
  workers.max_idle = options.keeps_workers;
  workers.saves_as_nvrtc = config.store_source;
  return workers;
}

/// The folder for hints; empty if the cache is off.
OwnFolder hint_folder(cache::Cache& cache, const std::filesystem::path& folder) {
  return cache.mode() == cache::Mode::kOff ? OwnFolder() : counted(cache, folder);
}

Toolchains::Folders toolchain_folders(cache::Cache& cache) {
  OwnFolder hints = hint_folder(cache, cache.layout().toolchains());
  // Not in a root that this process holds open: its workers do not.
  return {hints, cache.is_held() ? OwnFolder() : hints};
}

/// Null: there is none.
std::unique_ptr<remote::Remote> make_remote(
    std::optional<remote::RemoteOptions> options, cache::Cache& cache) {
  if (!options)
    return nullptr;
  options->node = node_folder(cache, "remote");
  return std::make_unique<remote::Remote>(*std::move(options), cache.counters());
}

Error with_source_hints(Error error, const PreparedRequest& request) {
  const auto* const wanted = request.as_source();
  const bool is_refusal = error.code == ErrorCode::kCompileFailed ||
                          error.code == ErrorCode::kInvalidArgument;  // its options
  if (wanted == nullptr || !is_refusal)
    return error;
  for (const std::string& hint : request::source_hints(wanted->source, error.message))
    error.message += "\nhint: " + hint;
  return error;
}

/// Errors: kInvalidArgument for a device, which cannot load it.
Result<device::BuildFor> lto_ir(const device::BuildFor& build_for) {
  const auto* const target = std::get_if<device::Target>(&build_for);
  if (target == nullptr)
    return refuse("-dlto makes LTO-IR, which no device loads");
  return device::Target{target->architecture, device::ImageKind::kLtoIr};
}

/// What to build for: a source may name the target itself. Errors: kInvalidArgument for
/// one that the device cannot run.
Result<device::BuildFor> wanted_by(const PreparedRequest& request,
                                   const device::BuildFor& build_for) {
  const PreparedRequest& first =
      request.objects().empty() ? request : request.objects().front();
  const auto* const source = first.as_source();
  const auto* const device = std::get_if<device::ComputeCapability>(&build_for);
  const bool is_forced = source != nullptr && source->as_nvrtc != nullptr;
  if (is_forced && source->as_nvrtc->is_lto && !source->target)
    return lto_ir(build_for);
  if (source == nullptr || !source->target || (device == nullptr && !is_forced))
    return build_for;
  if (device == nullptr)
    return *source->target;
  if (const std::string why = device::why_not(*source->target, *device); !why.empty())
    return refuse("target {}: {}", arch_name(*source->target), why);
  return *source->target;
}

/// What of a worker's environment can change a result.
std::string result_environment() {
  std::vector<std::string> settings = compile::worker_environment();
  std::erase_if(settings, [](const std::string& setting) {
    return setting.starts_with("TMPDIR=") ||
           setting.find("SAN_OPTIONS=") < setting.find('=');
  });
  return fmt::format("{}", fmt::join(settings, "\n"));
}

/// A failed build reports no files: its failure is everybody's only if the key covers
/// all that it can have read. A time-out is so in any case: to try it again in each
/// process would take N times the limit.
Answers whom_answers(const Error& error, const key::HeaderSnapshot& headers) {
  if (key::has_changed(headers.lookups))
    return Answers::kItsCaller;
  const bool is_covered =
      error.code == ErrorCode::kTimeout ||
      (headers.computed.empty() && headers.conditions.empty() && !headers.varying &&
       std::all_of(headers.files.begin(), headers.files.end(),
                   [](const key::HeaderFile& file) { return file.varies.empty(); }));
  return is_covered ? Answers::kEverybody : Answers::kItsCaller;
}

}  // namespace

Result<std::unique_ptr<BuildService>> BuildService::open(
    const Config& config, const BuildServiceOptions& options) {
  KILN_TRY(check_mounts(config));
  auto catalog = KILN_TRY(
      render::TemplateCatalog::open(templates::embedded(), config.template_dirs));
  std::optional<remote::RemoteOptions> remotes;
  if (options.asks_remotes)
    remotes = KILN_TRY(remote_options(config, options.signers));
  return std::unique_ptr<BuildService>(
      new BuildService(config, options, std::move(catalog), std::move(remotes)));
}

BuildService::BuildService(const Config& config, const BuildServiceOptions& options,
                           render::TemplateCatalog catalog,
                           std::optional<remote::RemoteOptions> remotes)
    : config_(config),
      jobs_(build_jobs(config)),
      catalog_(std::move(catalog)),
      journal_(
          options.journal.empty()
              ? nullptr
              : std::make_unique<Journal>(options.journal, config_, options.explains)),
      cache_(open_cache(config_, jobs_, options)),
      remote_(make_remote(std::move(remotes), *cache_)),
      builds_(
          *cache_,
          {config_.compile_timeout, config_.worker_memory_bytes, result_environment()},
          remote_.get()),
      workers_(worker_options(config_, jobs_, *cache_, options)),
      precompiled_(*cache_, precompiled_folder(config_, *cache_),
                   precompiled_limit(config_)),
      toolchains_(
          config_, toolchain_folders(*cache_),
          [this, closing = options.stop](
              const std::filesystem::path& nvrtc, const std::filesystem::path& builtins,
              const std::stop_token& stop) -> Result<device::NvrtcFacts> {
            const EitherStop either(closing, stop);
            const auto described = workers_.describe({nvrtc, builtins}, either.token());
            if (!described) {
              builds_.count_failure(described.error());
              return tl::unexpected(described.error());
            }
            return device::NvrtcFacts{{described->major, described->minor},
                                      described->architectures};
          },
          Toolchains::kLookAgainAfter,
          [this](SeedNeed need) {
            cache::Seeds* const seeds = cache_->seeds();
            if (seeds == nullptr)
              return std::vector<std::string>();
            if (need == SeedNeed::kNothingElse)
              seeds->be_patient();
            return seeds->toolchains(need == SeedNeed::kHint ? cache::SeedPlaces::kLocal
                                                             : cache::SeedPlaces::kAll);
          }),
      keys_(memo_folder(),
            compile::find_standard_headers(config_.worker.value_or(""))) {}

OwnFolder BuildService::memo_folder() {
  return hint_folder(*cache_, cache_->layout().memo());
}

Result<void> BuildService::check_process() const {
  if (is_of_this_process())
    return {};
  return fail(ErrorCode::kUnavailable,
              "this process was forked from the process that opened the service: open "
              "a service in the child, or start the child with exec");
}

Result<PreparedRequest> BuildService::prepare(const Request& request) const {
  KILN_TRY(check_process());
  auto resolved = KILN_TRY(request::resolve(request, catalog_));
  const auto* wanted = std::get_if<request::TemplateRequest>(&resolved);
  if (wanted != nullptr && !wanted->kernel->has_include())
    return RequestKeys::prepare(std::move(resolved));
  // All copies of a request use the headers found when the first copy was resolved.
  using Pointer = std::shared_ptr<const PreparedRequest>;
  const void* const identity = wanted == nullptr ? nullptr : wanted->kernel.get();
  return *KILN_TRY(request::FirstResolve::get<PreparedRequest>(
      request, identity, [&]() -> Result<Pointer> {
        return std::make_shared<const PreparedRequest>(
            KILN_TRY(RequestKeys::prepare(std::move(resolved))));
      }));
}

Result<std::shared_ptr<const device::ToolchainChoice>> BuildService::toolchain(
    const PreparedRequest& request, const device::BuildFor& build_for,
    const std::stop_token& stop) {
  const auto* const source = request.as_source();
  return source == nullptr || source->source.toolchain.empty()
             ? toolchains_.choose(build_for, stop)
             : toolchains_.named(source->source.toolchain, stop);
}

Result<std::variant<KeyedRequest, device::TargetSkipped>> BuildService::key(
    const PreparedRequest& request, const device::BuildFor& asked_for,
    const std::stop_token& stop,
    std::shared_ptr<const device::ToolchainChoice> toolchain) {
  KILN_TRY(check_process());
  const device::BuildFor build_for = KILN_TRY(wanted_by(request, asked_for));
  if (toolchain == nullptr)
    toolchain = KILN_TRY(this->toolchain(request, build_for, stop));
  const request::TemplateRequest* const wanted = request.as_template();
  const auto declared = wanted == nullptr ? std::vector<device::Architecture>()
                                          : wanted->kernel->targets().suffixed;
  const auto target =
      KILN_TRY(device::choose_target(build_for, declared, toolchain->toolchain.facts));
  if (wanted != nullptr) {
    if (auto reason =
            wanted->kernel->excluded(wanted->params, capability_of(build_for)))
      return device::TargetSkipped{*std::move(reason)};
  }
  if (request.objects().empty())
    return KILN_TRY(keys_.key(request, target, toolchain, stop));
  if (target.kind == device::ImageKind::kLtoIr && request.objects().size() == 1)
    return KILN_TRY(keys_.key(request.objects().front(), target, toolchain, stop));
  if (target.kind != device::ImageKind::kCubin) {
    return refuse("{} is linked, and nvJitLink makes a cubin: {} cannot be asked for",
                  request.label(), to_string(target));
  }
  return KILN_TRY(keys_.key(request, target, toolchain, stop,
                            KILN_TRY(toolchains_.linker(toolchain->toolchain))));
}

KeyedRequest BuildService::under_own_name(const KeyedRequest& request) {
  if (request.has_name)
    return request;
  const auto object = cache_->inspect(request.key);
  const bool is_other = object && *object && !may_use(request, **object).value_or(true);
  return is_other ? keys_.named(request) : request;
}

std::vector<KeyedRequest> BuildService::of_other_toolchains(
    const KeyedRequest& request, const std::stop_token& stop) {
  if (!config_.no_jit && request.toolchain->toolchain.installed())
    return {};
  std::vector<KeyedRequest> found;
  for (const auto& other : toolchains_.others(*request.toolchain)) {
    auto keyed = key(request.request, request.target, stop, other);
    auto* const each = keyed ? std::get_if<KeyedRequest>(&*keyed) : nullptr;
    if (each != nullptr)  // else it builds nothing for that target
      found.push_back(request.has_name && !each->has_name ? keys_.named(*each)
                                                          : std::move(*each));
  }
  return found;
}

std::optional<std::pair<KeyedRequest, cache::Tier>> BuildService::inspect(
    const KeyedRequest& request, const std::stop_token& stop) {
  auto tier = cache::Tier::kDisk;
  const auto is_there = [&](const KeyedRequest& each) {
    const auto object = cache_->inspect(each.key, &tier);
    return object && *object;  // one that is damaged would be built
  };
  if (is_there(request))
    return std::pair(request, tier);
  const auto others = of_other_toolchains(request, stop);
  const auto found = std::ranges::find_if(others, is_there);
  return found == others.end() ? std::nullopt : std::optional(std::pair(*found, tier));
}

Result<Fetched> BuildService::fetch(const KeyedRequest& request,
                                    const std::stop_token& stop, Answers* whom,
                                    std::optional<int> device) {
  const Asker asker{std::chrono::steady_clock::now(), stop, whom, device};
  auto fetched = fetch(request, asker);
  tell(request, fetched, asker);
  return fetched;
}

void BuildService::tell(const KeyedRequest& request, Result<Fetched>& fetched,
                        const Asker& asker) {
  if (journal_ == nullptr || (!fetched && asker.device))
    return;  // whoever has the device tells the failures of its requests
  const bool is_hit = fetched && fetched->outcome == FetchOutcome::kHit;
  std::string name;
  if (fetched && (!is_hit || journal_->tells_hits()))
    name = name_of(*fetched->object);
  if (name.empty() && !is_hit)
    name = request.request.name();
  const std::string arch = arch_name(request.target);
  std::string why =
      tell({.key = fetched ? &fetched->object->key() : &request.key,
            .name = name,
            .arch = arch,
            .began = asker.begun,
            .device = asker.device},
           fetched, [&] {
             return Compared{
                 preimage(request), likeness_of(request.request),
                 config_.store_source ? texts_of(request.request) : key::Texts()};
           });
  if (fetched)
    fetched->why_built = std::move(why);
}

std::string BuildService::tell(const Asked& asked, const Result<Fetched>& fetched,
                               const std::function<Compared()>& compared) {
  if (journal_ == nullptr)
    return "";
  if (!fetched) {
    if (fetched.error().code != ErrorCode::kCancelled && is_of_this_process())
      journal_->failed(asked, fetched.error());
    return "";
  }
  return journal_->got(asked, *fetched, [&]() -> std::string {
    if (!cache_->has_index())
      return "";  // without an index this would read every object
    const Compared wanted = compared();
    if (wanted.like.template_name.empty() && wanted.like.file.empty())
      return "";
    constexpr std::size_t kMostCompared = 16;
    NearestEntries entries(*cache_, kMostCompared, NearestEntries::IfNoneIsLike::kNone);
    const auto nearest = entries.find(*asked.key, wanted);
    if (!nearest)
      return "";
    if (!*nearest)
      return "the cache had no similar entry";
    return fmt::format("the nearest entry, {}, differs in {}",
                       (*nearest)->key.short_hex(),
                       to_text((*nearest)->differences,
                               config_.store_source ? Quotes::kYes : Quotes::kNo));
  });
}

Result<Fetched> BuildService::fetch(const KeyedRequest& request, const Asker& asker) {
  bool is_own = false;
  auto fetched = fetch_key(request, asker, is_own);
  if (request.has_name)
    return fetched;
  bool is_others = false;  // a result of the same source under another name
  if (fetched)  // a remote may have been faster than the build that this call began
    is_others = !may_use(request, *fetched->object).value_or(false);
  else if (const auto failure = compile::nvrtc_failure(fetched.error());
           failure && !is_own)
    is_others =
        !is_failure_of(failure->log, RequestKeys::name_of_program(request.request));
  return is_others ? fetch_key(keys_.named(request), asker, is_own) : fetched;
}

Result<Fetched> BuildService::fetch_key(const KeyedRequest& request, const Asker& asker,
                                        bool& is_own) {
  KILN_TRY(check_process());
  const std::string target = to_string(request.target);
  if (auto fetched = builds_.find(request.key, target))
    return *std::move(fetched);
  for (const KeyedRequest& other : of_other_toolchains(request, asker.stop)) {
    if (auto fetched = builds_.find(other.key, target))
      return *std::move(fetched);
  }
  const std::string name = request.request.name();
  const auto may_build = check_may_build(request, target);
  if (!may_build || !request.objects.empty()) {
    // A link is asked for before its objects are built.
    const BuildOrder order{
        .key = request.key,
        .target = target,
        .label = name,
        .remotes = may_build ? Remotes::kBriefly : Remotes::kPatiently,
        .begun = asker.begun};
    if (auto fetched = KILN_TRY(builds_.find_remote(order, asker.stop)))
      return *std::move(fetched);
  }
  KILN_TRY(may_build);
  std::vector<Fetched> objects;
  for (const KeyedRequest& object : request.objects)
    objects.push_back(KILN_TRY(fetch_part(object, asker)));
  auto built = builds_.build(
      {.key = request.key,
       .target = target,
       .label = name,
       .build =
           [&](const std::stop_token& stopped,
               const compile::ProgressCallback& on_phase) {
             is_own = true;
             return request.linker == nullptr
                        ? build(request, stopped, on_phase)
                        : link(request, objects, stopped, on_phase);
           },
       .whom =
           [&](const Error& error) {
             if (!std::ranges::all_of(objects, &Fetched::is_as_keyed))
               return Answers::kItsCaller;
             const Answers whom = whom_answers(error, *request.headers);
             // The others would read the compiler's log in a file; a time-out has none.
             const bool is_private = !config_.store_source && is_as_nvrtc(request) &&
                                     error.code != ErrorCode::kTimeout;
             return is_private ? std::min(whom, Answers::kThisProcess) : whom;
           },
       .remotes = request.objects.empty() ? Remotes::kBesideBuild : Remotes::kAsked,
       .begun = asker.begun},
      asker.stop, asker.whom);
  if (built && built->outcome == FetchOutcome::kCompiled) {
    for (const Fetched& object : objects) built->parts_built_in += object.built_in;
  }
  return built;
}

/// Only a build of a part is told: the request is the link's.
Result<Fetched> BuildService::fetch_part(const KeyedRequest& object,
                                         const Asker& asker) {
  const Asker told{std::chrono::steady_clock::now(), asker.stop, asker.whom,
                   asker.device};
  auto fetched = fetch(object, asker);
  if (fetched && fetched->outcome == FetchOutcome::kCompiled)
    tell(object, fetched, told);
  return fetched;
}

Result<void> BuildService::check_may_build(const KeyedRequest& request,
                                           std::string_view target) const {
  KILN_TRY(check_may_build(request.request.label(), target));
  if (!request.toolchain->toolchain.installed())
    return tl::unexpected(device::missing_nvrtc(request.toolchain->toolchain));
  return {};
}

Result<void> BuildService::check_may_build(std::string_view label,
                                           std::string_view target) const {
  if (!config_.no_jit)
    return {};
  return fail(ErrorCode::kUnavailable,
              "{} for {} is not in the cache {}, and {} forbids building it; warm the "
              "cache first",
              label, target, cache_->layout().root().native(), config_.no_jit_by.name);
}

Result<NewArtifact> BuildService::build(const KeyedRequest& request,
                                        const std::stop_token& stop,
                                        const compile::ProgressCallback& on_phase) {
  const auto began = std::chrono::system_clock::now();
  compile::CompileJob job = KILN_TRY(RequestKeys::job(request));
  job.time_limit = config_.compile_timeout;
  auto compiled = builds_.ask_worker(
      on_phase,
      [&](const compile::ProgressCallback& watched) -> Result<compile::CompileOutput> {
        const compile::Turn turn = KILN_TRY(workers_.wait_turn(job, stop, watched));
        const auto in_turn = [&](const compile::CompileJob& each) {
          return workers_.compile(each, stop, watched, turn);
        };
        return precompiled_.compile(request, job, in_turn);
      });
  if (!compiled && job.as_nvrtc)
    return tl::unexpected(std::move(compiled).error());
  if (!compiled)
    return tl::unexpected(with_source_hints(
        key::with_header_hint(
            std::move(compiled).error(), *request.headers,
            keys_.standard_headers(request.request, request.toolchain->toolchain),
            device::header_wheels(request.toolchain->toolchain.facts.version)),
        request.request));
  if (job.as_nvrtc) {
    // NVRTC opens a file of the source's own name, and reads the text that it was
    // given.
    const auto own = job.working_directory / job.program_name;
    std::erase_if(compiled->files.opened,
                  [&own](const OpenedFile& file) { return file.path == own; });
  }
  const compile::CompileOutput& output = *compiled;
  KILN_TRY(check_output(request, output));
  auto object = std::make_shared<const cache::StoredObject>(KILN_TRY(make_object(
      request, keys_.preimage(request),
      config_.store_source ? with_headers(job.source, job.headers) : job.source,
      output)));
  return NewArtifact{std::move(object), find_mismatch(request, output, began)};
}

Result<NewArtifact> BuildService::link(const KeyedRequest& request,
                                       const std::vector<Fetched>& objects,
                                       const std::stop_token& stop,
                                       const compile::ProgressCallback& on_phase) {
  if (request.linker->path.empty())
    return tl::unexpected(device::missing_nvrtc(request.toolchain->toolchain));
  std::vector<compile::LinkInput> inputs;
  std::vector<compile::LoweredName> names;
  std::optional<Error> mismatch;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const cache::StoredObject& object = *objects[i].object;
    inputs.push_back({request.objects[i].request.label(),
                      Bytes(object.payload().begin(), object.payload().end())});
    const cache::Metadata metadata = KILN_TRY(object.metadata());
    for (const auto* const list : {&metadata.entry_points, &metadata.variables}) {
      for (const cache::EntryPoint& name : *list)
        names.push_back({name.name, name.lowered});
    }
    if (!objects[i].is_as_keyed)
      mismatch = objects[i].not_stored;
  }
  const auto began = std::chrono::system_clock::now();
  compile::LinkJob job = RequestKeys::link_job(request, std::move(inputs));
  job.time_limit = config_.compile_timeout;
  compile::CompileOutput output = KILN_TRY(
      builds_.ask_worker(on_phase, [&](const compile::ProgressCallback& watched) {
        return workers_.link(job, stop, watched);
      }));
  output.lowered_names = std::move(names);
  KILN_TRY(check_output(request, output));
  auto object = std::make_shared<const cache::StoredObject>(
      KILN_TRY(make_object(request, keys_.preimage(request), {}, output)));
  if (!mismatch)
    mismatch = find_mismatch(request, output, began);
  return NewArtifact{std::move(object), std::move(mismatch)};
}

std::optional<Error> BuildService::find_mismatch(
    const KeyedRequest& request, const compile::CompileOutput& output,
    std::chrono::system_clock::time_point began) {
  if (auto other = other_toolchain(request, output)) {
    cache_->counters().add(cache::Counter::kToolchainNotAsKeyed);
    log(LogLevel::kWarning, {other->message});
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
    log(LogLevel::kWarning, {error.message});
    return error;
  }
  return std::nullopt;
}

}  // namespace kiln
