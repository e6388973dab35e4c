// A run of builds: what the cache has is found first, and then the rest is built.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <tuple>

#include "build/entry_label.h"
#include "build/event_file.h"
#include "tools/build_run.h"
#include "tools/build_times.h"
#include "tools/in_threads.h"
#include "tools/open_cache.h"
#include "tools/output/file_output.h"
#include "tools/output/progress.h"
#include "util/log.h"
#include "util/mutex.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::duration_cast;
using std::chrono::milliseconds;

BuildVerdict verdict_of(const Result<Fetched>& fetched) {
  if (fetched) {
    switch (fetched->outcome) {
      case FetchOutcome::kHit:
        return BuildVerdict::kHit;
      case FetchOutcome::kCompiled:
        return BuildVerdict::kCompiled;
      case FetchOutcome::kWaited:
        return BuildVerdict::kWaited;
    }
  }
  switch (fetched.error().code) {
    case ErrorCode::kTimeout:
      return BuildVerdict::kTimeout;
    case ErrorCode::kCancelled:
      return BuildVerdict::kNotReached;
    default:
      return BuildVerdict::kFailed;
  }
}

/// One run: its threads take the items in turn.
class Runner {
 public:
  Runner(Context& context, BuildService& service, const BuildRunOptions& options,
         EventFile* events, BuildReport& report)
      : context_(context),
        service_(service),
        options_(options),
        events_(events),
        report_(report),
        // One thread more than can build at a time: while one waits for the disk, the
        // others build. Not under fail_fast: after a failure no other thread may be
        // about to begin.
        threads_(options.jobs + (options.fail_fast ? 0 : 1)),
        // A stop of the whole program is passed on to this run's own source, which
        // fail_fast uses as well.
        forward_(context.stop->token(), [this] { stop_.request_stop(); }) {}

  Result<void> run() {
    std::vector<std::size_t> all(report_.items.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    in_threads(all, [this](std::size_t i) { look_up(i); });
    std::vector<std::size_t> rest;
    for (const std::size_t i : all) {
      const BuildVerdict verdict = report_.entries[i].verdict;
      if (verdict == BuildVerdict::kNotReached || verdict == BuildVerdict::kMissing)
        rest.push_back(i);
    }
    if (rest.empty() || stop_.stop_requested())
      return {};
    KILN_TRY(check_store(rest));
    expect(rest);
    if (options_.dry_run)
      return {};
    if (options_.must_store)
      print_note(fmt::format("{} of {} in the cache, {} to build\n",
                             all.size() - rest.size(), all.size(), rest.size()));
    Progress progress(context_.err, rest.size());
    in_threads(rest, [&](std::size_t i) { build(i, progress); });
    const MutexLock lock(mutex_);
    report_.gave_up = lost_.has_given_up() &&
                      std::ranges::any_of(report_.entries, [](const BuildEntry& entry) {
                        return entry.verdict == BuildVerdict::kNotReached;
                      });
    return {};
  }

 private:
  void in_threads(const std::vector<std::size_t>& items,
                  const std::function<void(std::size_t)>& handle) {
    tools::in_threads(threads_, items.size(), stop_.get_token(),
                      [&](std::size_t at) { handle(items[at]); });
  }

  /// Only a dry run is done with what is not there.
  void look_up(std::size_t i) {
    const bool has_key = key_of(report_.items[i]) != nullptr;
    BuildEntry entry = has_key ? inspect(report_.items[i]) : BuildEntry();
    if (options_.dry_run)
      report_result(i, has_key ? std::move(entry) : fetch(i));
    else if (entry.verdict == BuildVerdict::kHit)
      report_result(i, fetch(i));  // counts the hit
  }

  void build(std::size_t i, Progress& progress) {
    const BuildItem& item = report_.items[i];
    const std::string name = item.label + " " + item.arch;
    progress.start(name);
    BuildEntry entry = fetch(i);
    bool is_full = false;
    {
      const MutexLock lock(mutex_);
      times_.finish(item.name, entry.elapsed);
      progress.finish(name, times_.left(threads_));
      is_full = options_.must_store && is_disk_full(entry);
    }
    if (is_full)
      stop_.request_stop();
    report_result(i, std::move(entry));
  }

  BuildEntry fetch(std::size_t i) {
    const BuildItem& item = report_.items[i];
    BuildEntry entry;
    if (const auto* error = std::get_if<Error>(&item.keyed)) {
      entry.verdict = BuildVerdict::kFailed;
      entry.error = *error;
      return entry;
    }
    const auto began = Clock::now();
    bool is_refused = false;
    auto fetched = fetch(item, is_refused);
    entry.verdict = is_refused ? BuildVerdict::kRefused : verdict_of(fetched);
    if (fetched) {
      entry.key = fetched->object->key();
      entry.why_built = fetched->why_built;
      if (events_ != nullptr)
        entry.name = name_of(*fetched->object);
      entry.stored = !fetched->not_stored;
      entry.built_in = fetched->built_in + fetched->parts_built_in;
      entry.tier = fetched->tier;
      entry.server = fetched->server;
      note_pulled(item, entry);
      entry.error = fetched->not_stored;
      if (options_.keep_objects)
        entry.object = fetched->object;
    } else if (entry.verdict != BuildVerdict::kNotReached) {
      entry.error = fetched.error();
    }
    entry.elapsed = duration_cast<milliseconds>(Clock::now() - began);
    return entry;
  }

  void note_pulled(const BuildItem& item, BuildEntry& entry) const {
    if (options_.pulled == nullptr)
      return;
    if (const auto at = options_.pulled->find(*key_of(item));
        at != options_.pulled->end()) {
      entry.tier = cache::Tier::kRemote;
      entry.server = at->second;
    }
  }

  Result<Fetched> fetch(const BuildItem& item, bool& is_refused) {
    if (const auto* keyed = std::get_if<KeyedRequest>(&item.keyed))
      return service_.fetch(*keyed, stop_.get_token());
    const auto& keyed = std::get<KeyedPlan>(item.keyed);
    auto fetched = KILN_TRY(options_.plans->fetch(keyed, stop_.get_token()));
    is_refused = fetched.object == nullptr;
    if (is_refused)
      return fail(ErrorCode::kCompileFailed, "cuDNN {} refuses it: {}",
                  to_string(keyed.version), kiln::to_string(fetched.attempts));
    return Fetched(std::move(fetched));
  }

  BuildEntry inspect(const BuildItem& item) {
    BuildEntry entry;
    entry.verdict = BuildVerdict::kMissing;
    auto tier = cache::Tier::kDisk;
    if (const auto* const keyed = std::get_if<KeyedRequest>(&item.keyed)) {
      if (const auto found = service_.inspect(*keyed, stop_.get_token()))
        std::tie(entry.key, tier) = std::pair(found->first.key, found->second);
    } else {
      const auto object = service_.cache().inspect(*key_of(item), &tier);
      if (object && *object)  // one that is damaged would be built
        entry.key = *key_of(item);
    }
    if (!entry.key)
      return entry;
    entry.verdict = BuildVerdict::kHit;
    entry.stored = true;
    entry.tier = tier;
    return entry;
  }

  /// Prepares the time left for the builds of `rest` from those that the cache has.
  void expect(const std::vector<std::size_t>& rest) {
    const MutexLock lock(mutex_);
    cache::ListQuery query;
    std::set<std::string> names;
    for (const std::size_t i : rest) {
      const BuildItem& item = report_.items[i];
      times_.expect(item.name);
      if (item.named_as == "template" && names.insert(item.name).second)
        query.templates.push_back(item.name);
    }
    constexpr std::size_t kEnough = 1000;
    query.limit = kEnough;
    // Without an index this would read every object.
    if (!query.templates.empty() && service_.cache().has_index()) {
      if (const auto entries = service_.cache().list(query)) {
        for (const cache::Entry& entry : *entries)
          times_.remember(entry.template_name, milliseconds(entry.compile_ms));
      }
    }
    if (options_.dry_run)
      report_.expected = times_.left(std::min<std::size_t>(threads_, rest.size()));
  }

  Result<void> check_store(const std::vector<std::size_t>& rest) {
    const cache::Cache& cache = service_.cache();
    if (!options_.must_store || cache.mode() == cache::Mode::kReadWrite)
      return {};
    const bool is_off = cache.mode() == cache::Mode::kOff;
    std::string why = cache.mode_reason();
    if (options_.dry_run && cache.is_absent()) {  // a run would make it
      const auto possible = check_can_be_made(cache);
      if (possible)
        return {};
      why = possible.error().message;
    }
    const auto text = fmt::format(
        "nothing is built, since nothing can be stored ({} of {} kernels are in the "
        "cache): the cache is {}: {}",
        report_.items.size() - rest.size(), report_.items.size(),
        is_off ? "off" : "read-only", why);
    if (!options_.dry_run || is_off)
      return fail(ErrorCode::kUnavailable, text);
    // A dry run still tells what a read-only cache lacks.
    print_error(fmt::format("{} {}\n", context_.err.styled("kiln:", Style::kYellow),
                            printable_lines(text)));
    report_.cannot_store = true;
    return {};
  }

  /// True once a few results in a row could not be written. One that is not stored for
  /// a reason of its own, such as a source with a date in it, says nothing of the next.
  bool is_disk_full(const BuildEntry& entry) KILN_REQUIRES(mutex_) {
    if (!is_failure(entry.verdict) && entry.verdict != BuildVerdict::kNotReached)
      lost_.count(entry.is_not_stored() && entry.error &&
                  entry.error->code == ErrorCode::kIo);
    return lost_.has_given_up();
  }

  /// True for one that is counted and not listed.
  [[nodiscard]] bool is_forbidden(const BuildItem& item,
                                  const BuildEntry& entry) const {
    return !options_.lists_forbidden && service_.config().no_jit &&
           key_of(item) != nullptr && entry.verdict == BuildVerdict::kFailed &&
           entry.error->code == ErrorCode::kUnavailable;
  }

  /// Keeps the entry of an item, and prints it where it failed.
  void report_result(std::size_t i, BuildEntry result) {
    const BuildItem& item = report_.items[i];
    BuildEntry& entry = report_.entries[i];
    entry = std::move(result);
    if (is_forbidden(item, entry)) {
      report_.forbidden_by = service_.config().no_jit_by.name;
    } else if (is_failure(entry.verdict)) {
      const bool is_final =
          entry.verdict != BuildVerdict::kRefused || options_.on_refusal.empty();
      const auto text =
          fmt::format("{} {}: {}{}", item.label, item.arch, entry.error->message,
                      is_final ? "" : options_.on_refusal);
      print_error(printable_lines(text) + "\n");
      if (is_final && options_.fail_fast)
        stop_.request_stop();
    }
    if (options_.fail_fast && is_forbidden(item, entry))
      stop_.request_stop();
    if (options_.on_success && !is_failure(entry.verdict) &&
        entry.verdict != BuildVerdict::kNotReached)
      options_.on_success(item, entry);
    if (events_ == nullptr)
      return;
    const auto* const keyed = std::get_if<KeyedRequest>(&item.keyed);
    const std::string name = !entry.name.empty() ? entry.name
                             : keyed != nullptr  ? keyed->request.name()
                                                 : item.label;
    events_->write({.name = name,
                    .arch = item.arch,
                    .outcome = to_string(entry.verdict),
                    .tier = entry.tier,
                    .server = entry.server,
                    .stored = entry.stored,
                    .took = entry.elapsed,
                    .built_in = entry.verdict == BuildVerdict::kCompiled
                                    ? std::optional(entry.built_in)
                                    : std::nullopt,
                    .key = entry.key ? &*entry.key : key_of(item),
                    .nearest = entry.why_built,
                    .error = entry.error ? &*entry.error : nullptr});
  }

  Context& context_;
  BuildService& service_;
  const BuildRunOptions& options_;
  EventFile* const events_;  // null: none are written
  BuildReport& report_;
  const std::size_t threads_;
  std::stop_source stop_;
  std::stop_callback<std::function<void()>> forward_;
  Mutex mutex_;
  BuildTimes times_ KILN_GUARDED_BY(mutex_);
  LostResults lost_ KILN_GUARDED_BY(mutex_);
};

/// Null without KILN_EVENTS and --events. Errors: only of the option; the variable is
/// for jobs, which go on.
Result<std::unique_ptr<EventFile>> open_events(const Config& config) {
  if (!config.events)
    return nullptr;
  auto opened = EventFile::open(config, LineFile::Takes::kAnyFile);
  if (opened)
    return opened;
  if (config.events_by.name == "--events") {
    if (opened.error().code != ErrorCode::kUnavailable)  // the mount answers
      KILN_TRY(check_output_path("--events", config.events->native()));
    return opened;
  }
  log(LogLevel::kWarning, {"no events are written: ", opened.error().message});
  return nullptr;
}

}  // namespace

Result<void> run_builds(Context& context, BuildService& service,
                        const BuildRunOptions& options, BuildReport& report) {
  const auto began = Clock::now();
  std::vector<BuildItem> unique;
  std::set<Digest> seen;
  for (BuildItem& item : report.items) {
    const Digest* const key = key_of(item);
    const auto* const keyed = std::get_if<KeyedRequest>(&item.keyed);
    // Programs of two names may need two builds.
    if (key == nullptr ||
        seen.insert(keyed != nullptr ? service.named(*keyed).key : *key).second)
      unique.push_back(std::move(item));
  }
  report.items = std::move(unique);
  report.dry_run = options.dry_run;
  report.entries.assign(report.items.size(), BuildEntry{});
  const auto events = KILN_TRY(open_events(context.config));
  KILN_TRY(Runner(context, service, options, events.get(), report).run());
  report.elapsed = duration_cast<milliseconds>(Clock::now() - began);
  return {};
}

}  // namespace kiln::tools
