#include "kiln/service.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <utility>
#include <variant>

#include "build/build_service.h"
#include "build/entry_label.h"
#include "build/settings.h"
#include "device/devices.h"
#include "library/kernel_memory.h"
#include "library/loaded_kernel.h"
#include "library/only_loaded.h"
#include "library/prefetcher.h"
#include "library/profiler_range.h"
#include "library/request_record.h"
#include "library/service_parts.h"
#include "util/log.h"
#include "util/nearest.h"
#include "util/public_border.h"
#include "util/striped.h"
#include "util/try.h"
#include "util/words.h"

// The data path, one named step per line:
//
//   request ─┬─ memory
//            └─ validate ─ target ─ key ─┬─ memory
//                                        └─ disk, or build ─ load on the device
//
// provide() reads like it. BuildService does what lies between key and load.

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

/// KILN_DISABLE: switches kernels off from outside a program.
/// Thread safety: immutable.
class DisabledKernels {
 public:
  /// `config.disabled` are kernel names, which may contain the shell's * ? []. A
  /// pattern that matches no kernel of `catalog` is logged with the nearest name: a
  /// misspelled name would otherwise leave its kernel on without notice.
  DisabledKernels(const Config& config, const render::TemplateCatalog& catalog)
      : patterns_(config.disabled), set_by_(config.disabled_by) {
    if (patterns_.empty())
      return;
    const std::vector<std::string> names = catalog.names();
    for (const std::string& pattern : patterns_) {
      if (std::ranges::none_of(
              names, [&](const std::string& name) { return matches(pattern, name); }))
        log(LogLevel::kWarning, {set_by_.name, ": there is no kernel '", pattern, "'",
                                 did_you_mean(pattern, names)});
    }
  }

  /// Errors: kUnavailable, if the request's kernel is switched off. Sources never are.
  [[nodiscard]] Result<void> check(const Request& request) const {
    if (!request.is_template())
      return {};
    for (const std::string& pattern : patterns_) {
      if (matches(pattern, request.name()))
        return fail(ErrorCode::kUnavailable, "{} is switched off by {} ({})",
                    request.name(), set_by_.name, pattern);
    }
    return {};
  }

 private:
  static bool matches(const std::string& pattern, const std::string& name) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  }

  const std::vector<std::string> patterns_;
  const SetBy set_by_;
};

/// One get(): its arguments, and what its events have in common.
struct Call {
  const Request& request;
  const Device& device;
  const std::stop_token& stop;
  Clock::time_point began = Clock::now();
  std::string kernel{};
  std::optional<PreparedRequest> prepared{};  // as far as it came
  std::optional<KeyedRequest> keyed{};
};

struct Loaded {
  std::shared_ptr<const LoadedKernel> kernel;
  /// Set if the kernel was built from other inputs than its key says: no other request
  /// may get it.
  std::optional<PreparedRequest> only_for{};
  /// Set, and with it only_for, if that build failed: `kernel` is null.
  std::optional<Error> failure{};
  std::optional<Fetched> fetched{};  // nullopt: it was loaded already
};

/// Requests that read headers are found by key alone: the headers may change between
/// requests.
FoundBy found_by(const PreparedRequest& request) {
  const request::TemplateRequest* wanted = request.as_template();
  return wanted != nullptr && !wanted->kernel->has_include()
             ? FoundBy::kNameAndParameters
             : FoundBy::kKeyAlone;
}

/// "scaled_softmax_fwd:dtype=bf16 (key 3f9c21d0a4b2) for device 0 (...): <message>".
tl::unexpected<Error> named(const Error& error, const KeyedRequest& request,
                            const Device& device) {
  return fail(error.code, "{} (key {}) for {}: {}", request.request.label(),
              request.key.short_hex(), device::label_of(device), error.message);
}

constexpr std::size_t kKinds = 8;

}  // namespace

std::string_view to_string(Event::Kind kind) {
  return word_of(kind, {"hit", "compiled", "waited", "not_stored", "loaded", "failed",
                        "seed", "remote"});
}

class Service::Impl {
 public:
  static Result<std::unique_ptr<Impl>> open(const Options& options);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    stop_.request_stop();
    count_memory_hits();
    builds_->journal()->count_memory_hits(nullptr);
  }

  Result<Kernel> get(const Request& request, const Device& device,
                     const std::stop_token& stop);
  Result<void> prefetch(const Request& request, const Device& device);
  [[nodiscard]] Statistics statistics() const;

 private:
  friend class Service;
  friend struct ServiceParts;

  Impl(std::stop_source stop, std::unique_ptr<BuildService> builds,
       std::unique_ptr<Devices> devices, std::unique_ptr<RequestRecord> record,
       std::function<void(const Event&)> on_event);

  // The steps of get(), in order.
  Result<KernelMemory::Pointer> provide(Call& call);
  Result<KeyedRequest> key(const PreparedRequest& request, const Call& call);
  [[nodiscard]] LoadPlace place_of(const KeyedRequest& request, const Device& device);
  [[nodiscard]] Result<void> check_driver(const KeyedRequest& request,
                                          const Device& device) const;
  Result<Loaded> load_once(const KeyedRequest& request, const Call& call);
  Result<Loaded> load(const KeyedRequest& request, const Call& call);

  void tell_wait(const KeyedRequest& request, const Call& call, const Loaded& loaded);
  void tell_failure(const Call& call, const Error& error);
  void report(Event::Kind kind, const Call& call,
              const std::optional<Error>& error = std::nullopt);
  void count_memory_hits();

  StripedCounter memory_hits_;  // first, since it fills whole cache lines

  // Constant after construction.
  std::stop_source stop_;  // ends a query of an NVRTC's version
  const std::unique_ptr<BuildService> builds_;
  const DisabledKernels disabled_;
  const std::unique_ptr<Devices> devices_;
  const std::unique_ptr<RequestRecord> record_;  // null: nothing is recorded
  const std::function<void(const Event&)> on_event_;

  AttentionDecisions attention_;
  KernelMemory memory_;
  SingleFlight<LoadPlace, Loaded> loads_;
  std::array<std::atomic<std::uint64_t>, kKinds> reported_{};
  std::atomic<std::uint64_t> counted_memory_hits_ = 0;
  Prefetcher prefetcher_;  // last: its tasks use all of the above
};

Result<std::unique_ptr<Service::Impl>> Service::Impl::open(const Options& options) {
  const Config config = KILN_TRY(settings(options, process_environment()));
  if (config.log_level)
    KILN_TRY(about(options.log_level ? "Options::log_level" : "KILN_LOG",
                   set_log_level(*config.log_level)));
  std::stop_source stop;
  auto builds = KILN_TRY(BuildService::open(
      config,
      {.stop = stop.get_token(), .journal = "kernels", .may_be_elsewhere = true}));
  // Unless opening succeeds, stops a query of an NVRTC's version, for which the
  // destructor of `builds` waits.
  std::unique_ptr<std::stop_source, void (*)(std::stop_source*)> query(
      &stop, [](std::stop_source* asked) { asked->request_stop(); });
  builds->toolchains().start_search();
  auto devices = KILN_TRY(Devices::open(KILN_TRY(builds->toolchains().driver())));
  std::unique_ptr<RequestRecord> record;
  if (config.record)
    record = KILN_TRY(RequestRecord::open(*config.record));
  std::ignore = query.release();
  return std::unique_ptr<Impl>(new Impl(std::move(stop), std::move(builds),
                                        std::move(devices), std::move(record),
                                        options.on_event));
}

Service::Impl::Impl(std::stop_source stop, std::unique_ptr<BuildService> builds,
                    std::unique_ptr<Devices> devices,
                    std::unique_ptr<RequestRecord> record,
                    std::function<void(const Event&)> on_event)
    : stop_(std::move(stop)),
      builds_(std::move(builds)),
      disabled_(builds_->config(), builds_->catalog()),
      devices_(std::move(devices)),
      record_(std::move(record)),
      on_event_(std::move(on_event)),
      attention_(*builds_, *devices_),
      prefetcher_(builds_->jobs()) {
  builds_->journal()->count_memory_hits(&memory_hits_);
}

Result<Kernel> Service::Impl::get(const Request& request, const Device& device,
                                  const std::stop_token& stop) {
  // In a forked child the lock of memory_ may be held for ever, and so may a lock of
  // the callback.
  KILN_TRY(devices_->check_process());
  if (devices_->has(device)) {
    if (auto kernel = memory_.find(request, device.ordinal)) {
      memory_hits_.add();
      return LoadedKernel::handle(std::move(kernel));
    }
  }
  const NoCancellation uncancelled;  // what is in memory costs 40 ns, and this 20
  Call call{
      .request = request, .device = device, .stop = stop, .kernel = request.name()};
  const ProfilerRange range("get", call.kernel);
  auto kernel = provide(call);
  if (!kernel) {
    if (!only_loaded())
      tell_failure(call, kernel.error());
    return tl::unexpected(std::move(kernel).error());
  }
  return LoadedKernel::handle(*std::move(kernel));
}

Result<KernelMemory::Pointer> Service::Impl::provide(Call& call) {
  KILN_TRY(devices_->check(call.device));
  KILN_TRY(disabled_.check(call.request));
  call.prepared = KILN_TRY(builds_->prepare(call.request));
  const PreparedRequest& prepared = *call.prepared;
  call.kernel = prepared.label();
  const auto not_loaded = [&] {
    return fail(ErrorCode::kNotFound, "{} is not loaded on {}", call.kernel,
                device::label_of(call.device));
  };
  if (only_loaded() && found_by(prepared) == FoundBy::kNameAndParameters)
    return not_loaded();  // else it had been found
  call.keyed = KILN_TRY(key(prepared, call));
  const KeyedRequest& keyed = *call.keyed;
  const LoadPlace place = place_of(keyed, call.device);
  if (only_loaded() && !memory_.find(place))
    return not_loaded();
  KILN_TRY(check_driver(keyed, call.device));
  if (record_ != nullptr)
    record_->add(keyed.key, call.request, keyed.target, keyed.toolchain->toolchain);
  Loaded loaded = KILN_TRY(load_once(keyed, call));
  if (!loaded.only_for)
    memory_.answer(call.request, place, loaded.kernel, found_by(prepared));
  return std::move(loaded.kernel);
}

Result<KeyedRequest> Service::Impl::key(const PreparedRequest& request,
                                        const Call& call) {
  const Device& device = call.device;
  auto key = builds_->key(request, device.capability, call.stop);
  if (!key) {
    return fail(key.error().code, "{} for {}: {}", request.label(),
                device::label_of(device), key.error().message);
  }
  if (const auto* skipped = std::get_if<device::TargetSkipped>(&*key)) {
    return fail(ErrorCode::kUnavailable, "{} is not for {}: it {}", request.label(),
                device::label_of(device), skipped->reason);
  }
  return std::get<KeyedRequest>(*std::move(key));
}

/// By the program's name, too: the results of two names may differ.
LoadPlace Service::Impl::place_of(const KeyedRequest& request, const Device& device) {
  return {builds_->named(request).key, device.ordinal};
}

/// Refuses what the driver would refuse, before building it.
Result<void> Service::Impl::check_driver(const KeyedRequest& request,
                                         const Device& device) const {
  const auto accepted = devices_->check_driver(
      request.target.kind, request.toolchain->toolchain.facts.version);
  return accepted ? accepted : named(accepted.error(), request, device);
}

/// One load among the threads of this process.
Result<Loaded> Service::Impl::load_once(const KeyedRequest& request, const Call& call) {
  const LoadPlace place = place_of(request, call.device);
  if (auto kernel = memory_.find(place)) {
    memory_hits_.add();
    return Loaded{std::move(kernel)};
  }
  auto [loaded, computed] =
      loads_.run(place, call.stop, [&] { return load(request, call); });
  if (!computed && !loaded && call.stop.stop_requested())
    return named(loaded.error(), request, call.device);  // only this caller was stopped
  if (!computed && loaded && loaded->only_for &&
      !loaded->only_for->is_copy_of(request.request))
    loaded = load(request, call);
  else if (!computed && loaded && !loaded->failure)
    tell_wait(request, call, *loaded);
  if (loaded && loaded->failure)
    return tl::unexpected(*std::move(loaded->failure));
  return std::move(loaded);
}

/// This call has waited for another thread of this process.
void Service::Impl::tell_wait(const KeyedRequest& request, const Call& call,
                              const Loaded& loaded) {
  report(Event::Kind::kWaited, call);
  if (!loaded.fetched || loaded.fetched->outcome == FetchOutcome::kHit)
    return;
  Fetched fetched = *loaded.fetched;
  fetched.outcome = FetchOutcome::kWaited;
  fetched.tier = cache::Tier::kMemory;
  const std::string name = name_of(*fetched.object);
  const std::string arch = arch_name(request.target);
  builds_->journal()->got({.key = &fetched.object->key(),
                           .name = name,
                           .arch = arch,
                           .began = call.began,
                           .device = call.device.ordinal},
                          fetched, {});
}

/// Of get(), wherever it failed; a stop is no failure.
void Service::Impl::tell_failure(const Call& call, const Error& error) {
  report(Event::Kind::kFailed, call, error);
  if (error.code == ErrorCode::kCancelled)
    return;
  const std::string name = call.prepared ? call.prepared->name() : call.kernel;
  const std::string arch =
      call.keyed ? arch_name(call.keyed->target) : to_string(call.device.capability);
  builds_->journal()->failed({.key = call.keyed ? &call.keyed->key : nullptr,
                              .name = name,
                              .arch = arch,
                              .began = call.began,
                              .device = call.device.ordinal},
                             error);
}

Result<Loaded> Service::Impl::load(const KeyedRequest& request, const Call& call) {
  const LoadPlace place = place_of(request, call.device);
  // Another thread may have finished between our look and our turn.
  if (auto kernel = memory_.find(place))
    return Loaded{std::move(kernel)};
  if (auto kernel = memory_.find(call.request, place.device))
    return Loaded{std::move(kernel), request.request};
  Answers whom = Answers::kEverybody;
  const auto done = builds_->fetch(request, call.stop, &whom, call.device.ordinal);
  if (!done) {
    auto failed = named(done.error(), request, call.device);
    if (whom != Answers::kItsCaller)
      return failed;
    return Loaded{nullptr, request.request, std::move(failed).value()};
  }
  const Fetched& fetched = *done;
  report(event_of(fetched), call);
  if (fetched.not_stored && fetched.outcome == FetchOutcome::kCompiled)
    report(Event::Kind::kNotStored, call, fetched.not_stored);
  const ProfilerRange range("load", call.kernel);
  const auto context = KILN_TRY(devices_->context(call.device));
  Loaded loaded{
      .kernel = KILN_TRY(LoadedKernel::load(request, fetched.object, context)),
      .fetched = fetched};
  report(Event::Kind::kLoaded, call);
  if (fetched.is_as_keyed) {
    memory_.keep(place, loaded.kernel);
  } else {
    memory_.answer_alone(call.request, place.device, loaded.kernel);
    loaded.only_for = request.request;
  }
  return loaded;
}

Result<void> Service::Impl::prefetch(const Request& request, const Device& device) {
  KILN_TRY(devices_->check(device));
  KILN_TRY(disabled_.check(request));
  if (memory_.find(request, device.ordinal))
    return {};
  KILN_TRY(builds_->prepare(request));
  return prefetcher_.start([this, request, device](const std::stop_token& stop) {
    // An event has reported a failure, and a later get() returns it.
    std::ignore = at_border([&] { return get(request, device, stop); });
  });
}

void Service::Impl::report(Event::Kind kind, const Call& call,
                           const std::optional<Error>& error) {
  ++reported_[static_cast<std::size_t>(kind)];
  count_memory_hits();
  if (!on_event_)
    return;
  try {
    on_event_({.kind = kind,
               .kernel = call.kernel,
               .key = call.keyed ? call.keyed->key.hex() : "",
               .device = call.device.ordinal,
               .took = Clock::now() - call.began,
               .error = error});
  } catch (const std::exception& thrown) {
    log(LogLevel::kWarning, {"Options::on_event threw: ", thrown.what()});
  } catch (...) {
    log(LogLevel::kWarning, {"Options::on_event threw"});
  }
}

/// For the counts of all processes. Not at each hit, which takes nanoseconds.
void Service::Impl::count_memory_hits() {
  const std::uint64_t total = memory_hits_.total();
  std::uint64_t before = counted_memory_hits_;
  while (before < total && !counted_memory_hits_.compare_exchange_weak(before, total)) {
  }
  if (before >= total)
    return;
  builds_->cache().counters().add(cache::Counter::kMemoryHits, total - before);
}

Statistics Service::Impl::statistics() const {
  const auto count_of = [this](Event::Kind kind) {
    return reported_[static_cast<std::size_t>(kind)].load();
  };
  return {.memory_hits = memory_hits_.total(),
          .disk_hits = count_of(Event::Kind::kHit),
          .compiled = count_of(Event::Kind::kCompiled),
          .waited = count_of(Event::Kind::kWaited),
          .not_stored = count_of(Event::Kind::kNotStored),
          .loaded = count_of(Event::Kind::kLoaded),
          .failed = count_of(Event::Kind::kFailed),
          .seed_hits = count_of(Event::Kind::kSeed),
          .remote_hits = count_of(Event::Kind::kRemote)};
}

Result<Service> Service::open(const Options& options) {
  return at_border(
      [&]() -> Result<Service> { return Service(KILN_TRY(Impl::open(options))); });
}

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Service::Service(Service&& other) noexcept = default;

Service& Service::operator=(Service&& other) noexcept {
  Service closed(std::move(other));
  impl_.swap(closed.impl_);
  return *this;
}

Service::~Service() {
  const NoCancellation uncancelled;
  // A forked child lacks its threads, and its locks may be held for ever.
  if (impl_ != nullptr && !impl_->devices_->is_of_this_process())
    std::ignore = impl_.release();
  impl_.reset();
}

const std::vector<Device>& Service::devices() const {
  return impl_->devices_->list();
}

Result<Device> Service::device(int ordinal) const {
  return at_border([&] { return impl_->devices_->find(ordinal); });
}

Result<Device> Service::device_of(CUstream_st* stream) const {
  return at_border([&] { return impl_->devices_->device_of(stream); });
}

Result<Kernel> Service::get(const Request& request, const Device& device,
                            const std::stop_token& stop) {
  return at_quick_border([&] { return impl_->get(request, device, stop); });
}

Result<void> Service::prefetch(const Request& request, const Device& device) {
  return at_border([&] { return impl_->prefetch(request, device); });
}

Statistics Service::statistics() const {
  return impl_->statistics();
}

Result<std::string> Service::profile(const Device& device) const {
  return at_border([&] { return impl_->devices_->profile(device); });
}

AttentionDecisions& ServiceParts::attention_of(Service& service) {
  return service.impl_->attention_;
}

Devices& ServiceParts::devices_of(Service& service) {
  return *service.impl_->devices_;
}

KernelMemory& ServiceParts::kernels_of(Service& service) {
  return service.impl_->memory_;
}

StripedCounter& ServiceParts::memory_hits_of(Service& service) {
  return service.impl_->memory_hits_;
}

}  // namespace kiln
