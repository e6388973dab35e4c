#include "build/journal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "util/fork_count.h"
#include "util/log.h"
#include "util/mutex.h"
#include "util/open_objects.h"
#include "util/printable.h"
#include "util/units.h"

namespace kiln {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A build that takes longer belongs before the job.
constexpr std::chrono::seconds kSlowBuild{10};

milliseconds since(Clock::time_point began) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - began);
}

void tell(const std::string& summary) {
  if (!summary.empty())
    log(LogLevel::kInfo, {summary});
}

/// " for device 0 (9.0)".
std::string target_text(const Asked& asked) {
  if (asked.device)
    return fmt::format(" for device {} ({})", *asked.device, asked.arch);
  return asked.arch.empty() ? "" : fmt::format(" for {}", asked.arch);
}

/// The first line and, of a compiler's log below it, the first line with an error.
std::string gist_of(std::string_view message, bool quotes) {
  std::string gist(first_line(message));
  const std::size_t end = message.find('\n');
  while (quotes && end != std::string_view::npos && !message.empty()) {
    message.remove_prefix(std::min(message.find('\n'), message.size() - 1) + 1);
    if (const auto line = first_line(message); line.find("error") != line.npos)
      return fmt::format("{}: {}", gist, line);
  }
  return gist;
}

}  // namespace

Journal::Journal(std::string_view what, const Config& config, bool explains)
    : what_(what), explains_(explains), quotes_(config.store_source) {
  if (config.events) {
    auto opened = EventFile::open(config);
    if (opened)
      events_ = *std::move(opened);
    else
      log(LogLevel::kWarning, {"no events are written: ", opened.error().message});
  }
  OpenObjects<Journal>::add(this, [] { tell_all_summaries(); });
}

Journal::~Journal() {
  try {
    if (OpenObjects<Journal>::remove(this))  // else told when the process ended
      tell(summary());
  } catch (const std::exception&) {
    return;  // out of memory
  }
}

void Journal::tell_all_summaries() noexcept {
  try {
    std::vector<std::string> texts;
    OpenObjects<Journal>::with_all([&](std::vector<Journal*>& all) {
      for (const Journal* const journal : all) texts.push_back(journal->summary());
      all.clear();
    });
    if (has_log_writer())
      return;  // the host's own writer may have ended
    // Without the mutex: stderr may be a pipe that nobody reads.
    for (const std::string& text : texts) tell(text);
  } catch (const std::exception&) {
    return;  // out of memory
  }
}

std::string Journal::got(const Asked& asked, const Fetched& fetched,
                         const WhyBuilt& why) {
  const milliseconds took = since(asked.began);
  const bool is_built = fetched.outcome == FetchOutcome::kCompiled;
  const bool is_hit = fetched.outcome == FetchOutcome::kHit;
  const bool is_told = events_ != nullptr || is_logged(LogLevel::kInfo);
  std::string reason = is_built && (is_told || explains_) ? why() : "";
  const bool has_line =
      is_built || is_logged(is_hit ? LogLevel::kDebug : LogLevel::kInfo);
  const std::string target = has_line ? target_text(asked) : "";
  const std::string name = has_line ? printable(asked.name) : "";
  if (is_built) {
    ++built_;
    built_ms_ += fetched.built_in.count();
    const bool is_slow = fetched.built_in > kSlowBuild;
    log(is_slow ? LogLevel::kWarning : LogLevel::kInfo,
        {"built ", name, target, " in ", format_duration(fetched.built_in),
         fetched.not_stored ? "; it is not stored: " : "",
         fetched.not_stored ? printable(first_line(fetched.not_stored->message)) : "",
         reason.empty() ? "" : "; ", printable(reason),
         is_slow ? "; `kiln warm` builds it before a job" : ""});
  } else if (fetched.outcome == FetchOutcome::kWaited) {
    ++waited_;
    waited_ms_ += took.count();
    log(LogLevel::kInfo, {"waited ", format_duration(took), " for ", name, target,
                          ": another process or thread built it"});
  } else {
    ++hits_.at(static_cast<std::size_t>(fetched.tier));
    if (has_line)
      log(LogLevel::kDebug, {"found ", name, target, ": ", to_string(fetched.tier),
                             ", ", format_duration(took)});
  }
  if (events_ != nullptr)
    events_->write(
        {.name = asked.name,
         .arch = asked.arch,
         .outcome = to_string(fetched.outcome),
         .tier = fetched.tier,
         .server = fetched.server,
         .stored = !fetched.not_stored,
         .took = took,
         .built_in = is_built ? std::optional(fetched.built_in) : std::nullopt,
         .key = asked.key,
         .device = asked.device,
         .nearest = reason,
         .error = fetched.not_stored ? &*fetched.not_stored : nullptr});
  return reason;
}

void Journal::failed(const Asked& asked, const Error& error) {
  ++failed_;
  const milliseconds took = since(asked.began);
  if (is_logged(LogLevel::kInfo))
    log(LogLevel::kInfo,
        {"failed to get ", printable(asked.name), target_text(asked), " in ",
         format_duration(took), ": ", printable(gist_of(error.message, quotes_))});
  if (events_ != nullptr)
    events_->write({.name = asked.name,
                    .arch = asked.arch,
                    .outcome = error.code == ErrorCode::kTimeout ? "timeout" : "failed",
                    .took = took,
                    .key = asked.key,
                    .device = asked.device,
                    .error = &error});
}

void Journal::passed(std::string_view name, std::string_view reason) {
  ++passed_;
  if (events_ != nullptr)
    events_->write({.name = name, .arch = {}, .outcome = "passed", .reason = reason});
}

bool Journal::tells_hits() const {
  return events_ != nullptr || is_logged(LogLevel::kDebug);
}

void Journal::count_memory_hits(const StripedCounter* hits) {
  const MutexLock lock(memory_mutex_);
  if (memory_ != nullptr)
    memory_before_ += memory_->total();
  memory_ = hits;
}

std::uint64_t Journal::memory_hits() const {
  const MutexLock lock(memory_mutex_);
  return memory_before_ + (memory_ == nullptr ? 0 : memory_->total());
}

std::string Journal::summary() const {
  if (!owner_.is_this())
    return "";
  std::vector<std::string> parts;
  const auto add = [&](std::uint64_t count, std::string_view what) {
    if (count > 0)
      parts.push_back(fmt::format("{} {}", count, what));
  };
  add(memory_hits(), "loaded already");
  for (std::size_t i = 0; i < hits_.size(); ++i)
    add(hits_.at(i), fmt::format("from {}", to_string(static_cast<cache::Tier>(i))));
  add(built_, fmt::format("built in {}", format_duration(milliseconds(built_ms_))));
  add(waited_,
      fmt::format("waited for, {}", format_duration(milliseconds(waited_ms_))));
  add(failed_, "failed");
  add(passed_, "left to NVRTC");
  return parts.empty() ? "" : fmt::format("{}: {}", what_, fmt::join(parts, ", "));
}

}  // namespace kiln
