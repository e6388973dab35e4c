#include "build/toolchains.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <tuple>
#include <utility>

#include "toolchain/toolchain_files.h"
#include "util/log.h"
#include "util/quiet_thread.h"
#include "util/try.h"

namespace kiln {
namespace {

/// A seed whose mount is dead must not hold up what is chosen without it.
SeedNeed need_of_seeds(const std::vector<device::Toolchain>& usable,
                       const device::ToolchainCriteria& criteria) {
  const bool has_own = !criteria.recorded.empty() &&
                       device::matches(criteria.recorded.front(), criteria.wanted);
  if (usable.empty())
    return has_own ? SeedNeed::kHint : SeedNeed::kNothingElse;
  const bool is_only =
      usable.size() == 1 && device::choose_toolchain(usable, criteria).has_value();
  return has_own || is_only || usable.front().is_explicit ? SeedNeed::kHint
                                                          : SeedNeed::kChoice;
}

std::optional<device::LinkerId> linker_recorded(
    const std::vector<device::Toolchain>& records, const device::ToolchainId& id) {
  const auto found = std::ranges::find(records, id, &device::Toolchain::id);
  return found == records.end() ? std::nullopt : found->linker;
}

/// The first counts, unless another one is asked for.
void put_wanted_first(device::ToolchainCriteria& criteria) {
  auto& all = criteria.recorded;
  const auto wanted = std::ranges::find_if(
      all, [&](const auto& each) { return device::matches(each, criteria.wanted); });
  if (wanted != all.end())
    std::rotate(all.begin(), wanted, wanted + 1);
}

/// A manifest may be another user's: a worker opens no library of his.
bool may_be_opened(const std::filesystem::path& library) {
  struct stat found {};
  return ::stat(library.c_str(), &found) == 0 &&
         (found.st_uid == 0 || found.st_uid == ::geteuid());
}

}  // namespace

template <typename Value>
std::shared_ptr<const Value> Toolchains::known(Known<Value> Toolchains::*all,
                                               const std::string& name) {
  const MutexLock lock(mutex_);
  const auto found = (this->*all).find(name);
  return found == (this->*all).end() ? nullptr : found->second;
}

template <typename Value>
std::shared_ptr<const Value> Toolchains::keep(Known<Value> Toolchains::*all,
                                              const std::string& name, Value value) {
  auto made = std::make_shared<const Value>(std::move(value));
  const MutexLock lock(mutex_);
  return (this->*all).emplace(name, std::move(made)).first->second;
}

Toolchains::Toolchains(const Config& config, Folders folders, Ask ask,
                       std::chrono::seconds look_again_after, SeedRecords seeds)
    : config_(config),
      folders_(std::move(folders)),
      ask_(std::move(ask)),
      look_again_after_(look_again_after),
      seeds_(std::move(seeds)),
      places_(LibraryPlaces::of_process()) {}

Toolchains::~Toolchains() {
  if (!owner_.is_this())
    std::ignore = search_thread_.release();
  else if (search_thread_ != nullptr)
    search_thread_->join();
}

void Toolchains::start_search() {
  // A thread that does not start, throws or finds nothing does no harm: the caller that
  // needs the list searches again and gets the error.
  const auto search = [this] {
    try {
      std::ignore = found();
    } catch (const std::exception& thrown) {
      log(LogLevel::kDebug, {"looking for NVRTC: ", thrown.what()});
    } catch (...) {
      log(LogLevel::kDebug, {"looking for NVRTC: something was thrown"});
    }
  };
  if (auto thread = start_quiet_thread(search, Thread::kJoinable))
    search_thread_ = std::make_unique<std::thread>(*std::move(thread));
}

Result<Toolchains::Found> Toolchains::found(const std::stop_token& stop) {
  return searches_.run(0, stop, [&] { return search(stop); }).result;
}

device::ToolchainSearch Toolchains::search_options(const std::stop_token& stop) const {
  return {.places = places_,
          .explicit_nvrtc = config_.nvrtc.value_or(""),
          .nvrtc_by = config_.nvrtc_by.name,
          .folder = folders_.hints,
          .links = folders_.links,
          .ask = [this, stop](const auto& nvrtc, const auto& builtins) {
            return ask_(nvrtc, builtins, stop);
          }};
}

Result<Toolchains::Found> Toolchains::search(const std::stop_token& stop) {
  {
    const MutexLock lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (found_ != nullptr && (found_->unusable.empty() || now < look_again_at_))
      return found_;
  }
  auto found = std::make_shared<const device::FoundToolchains>(
      KILN_TRY(device::discover_toolchains(search_options(stop))));
  // A failed query may work later. It may have taken a minute, so read the clock again.
  const MutexLock lock(mutex_);
  look_again_at_ = std::chrono::steady_clock::now() + look_again_after_;
  found_ = found;
  return found;
}

Result<std::optional<device::Driver>> Toolchains::driver() {
  const MutexLock lock(driver_mutex_);
  if (!driver_)
    driver_ = KILN_TRY(device::Driver::open(config_.driver.value_or(""), places_,
                                            config_.driver_by.name));
  return *driver_;
}

Result<Toolchains::Choice> Toolchains::choose(
    const std::optional<device::BuildFor>& build_for, const std::stop_token& stop) {
  const std::string name = build_for ? to_string(*build_for) : "";
  if (auto before = known(&Toolchains::choices_, name))
    return before;
  const auto found = KILN_TRY(this->found(stop));
  if (found->usable.empty() && !found->unusable.empty()) {
    const device::UnusableNvrtc& first = found->unusable.front();
    return fail(ErrorCode::kUnavailable, "{} ({}) cannot be used: {}",
                first.path.native(), first.found_in, first.error.message);
  }
  device::ToolchainCriteria criteria{.wanted = config_.toolchain.value_or(""),
                                     .wanted_by = config_.toolchain_by.name,
                                     .recorded = own_records(),
                                     .driver = config_.for_driver,
                                     .only_for_driver = config_.for_driver.has_value(),
                                     .build_for = build_for};
  put_wanted_first(criteria);
  add_seed_records(need_of_seeds(found->usable, criteria), criteria.recorded);
  put_wanted_first(criteria);
  // A driver that cannot be opened must not stop `kiln warm` on a login node; `kiln
  // doctor` and the loading of a kernel report its error.
  if (!criteria.only_for_driver) {
    if (const auto opened = driver(); opened && *opened)
      criteria.driver = (*opened)->version();
  }
  auto choice = KILN_TRY(device::choose_toolchain(found->usable, criteria));
  warn_once(choice.warning);
  return keep(&Toolchains::choices_, name, std::move(choice));
}

Result<Toolchains::Choice> Toolchains::of(const std::filesystem::path& nvrtc,
                                          const std::stop_token& stop) {
  if (auto before = known(&Toolchains::exact_, nvrtc.native()))
    return before;
  std::error_code error;
  const auto resolved = std::filesystem::canonical(nvrtc, error);
  if (error)
    return fail(ErrorCode::kIo, "{}: {}", nvrtc.native(), error.message());
  auto toolchain = KILN_TRY(device::describe_toolchain(resolved, search_options(stop)));
  return keep(&Toolchains::exact_, nvrtc.native(),
              {std::move(toolchain), "the program's own", ""});
}

Result<Toolchains::Choice> Toolchains::named(const std::string& named,
                                             const std::stop_token& stop) {
  if (auto before = known(&Toolchains::exact_, named))
    return before;
  const auto wanted = KILN_TRY(device::parse_named(named));
  const auto all = KILN_TRY(found(stop));
  const auto match = std::ranges::find(all->usable, wanted.id, &device::Toolchain::id);
  if (match == all->usable.end()) {
    if (!may_be_opened(wanted.nvrtc))
      return tl::unexpected(device::missing_named(wanted));
    auto there = KILN_TRY(of(wanted.nvrtc, stop));
    return there->toolchain.id == wanted.id
               ? Result<Choice>(there)
               : tl::unexpected(device::missing_named(wanted));
  }
  return keep(&Toolchains::exact_, named, {*match, "the request names it", ""});
}

Result<std::shared_ptr<const device::Linker>> Toolchains::linker(
    const device::Toolchain& toolchain) {
  const std::string name = to_string(toolchain.id);
  if (auto before = known(&Toolchains::linkers_, name))
    return before;
  auto found = device::find_linker(toolchain, places_);
  if (!found) {  // as without an NVRTC: hits are served
    auto records = own_records();
    auto before = linker_recorded(records, toolchain.id);
    if (!before) {
      add_seed_records(SeedNeed::kChoice, records);
      before = linker_recorded(records, toolchain.id);
    }
    if (!before)
      return tl::unexpected(std::move(found).error());
    found = device::Linker{*before, {}, {}};
  }
  return keep(&Toolchains::linkers_, name, *std::move(found));
}

Result<void> Toolchains::record(device::Toolchain toolchain) {
  if (folders_.hints.empty()) {
    return fail(ErrorCode::kUnavailable,
                "the cache keeps nothing, so the toolchain is not recorded");
  }
  if (const auto linker = known(&Toolchains::linkers_, to_string(toolchain.id)))
    toolchain.linker = linker->id;
  if (!toolchain.linker) {
    auto records = own_records();
    if (records.empty())  // else no seed is asked
      add_seed_records(SeedNeed::kChoice, records);
    toolchain.linker = linker_recorded(records, toolchain.id);
  }
  return device::write_recorded(folders_.hints, toolchain);
}

std::vector<device::Toolchain> Toolchains::recorded() const {
  auto records = own_records();
  add_seed_records(SeedNeed::kChoice, records);
  return records;
}

std::vector<Toolchains::Choice> Toolchains::others(
    const device::ToolchainChoice& chosen) {
  {
    const MutexLock lock(mutex_);
    const bool is_chosen = std::ranges::any_of(
        choices_, [&](const auto& each) { return each.second.get() == &chosen; });
    if (!is_chosen || config_.toolchain || chosen.toolchain.is_explicit)
      return {};
  }
  std::vector<Choice> others;
  for (device::Toolchain& each : recorded()) {
    if (each.id != chosen.toolchain.id)
      others.push_back(std::make_shared<const device::ToolchainChoice>(
          device::ToolchainChoice{std::move(each), "it is recorded as well", ""}));
  }
  return others;
}

std::vector<device::Toolchain> Toolchains::own_records() const {
  if (folders_.hints.empty())
    return {};
  auto recorded = device::read_records(folders_.hints);
  if (recorded)
    return *std::move(recorded);
  const bool is_closed = recorded.error().code == ErrorCode::kIo;
  const bool is_news = is_closed && !has_warned_of_record_.exchange(true);
  log(is_news ? LogLevel::kWarning : LogLevel::kDebug,
      {"the NVRTC that this cache was warmed with is not known: ",
       recorded.error().message,
       is_closed ? "; the cache's owner can let others read it (chmod -R a+rX)" : ""});
  return {};
}

void Toolchains::add_seed_records(SeedNeed need,
                                  std::vector<device::Toolchain>& records) const {
  for (const std::string& text : seeds_ ? seeds_(need) : std::vector<std::string>()) {
    for (device::Toolchain& each : device::parse_records(text)) {
      if (std::ranges::find(records, each.id, &device::Toolchain::id) == records.end())
        records.push_back(std::move(each));
    }
  }
}

void Toolchains::warn_once(const std::string& warning) {
  const MutexLock lock(mutex_);
  if (!warning.empty() && warned_.insert(warning).second)
    log(LogLevel::kWarning, {warning});
}

}  // namespace kiln
