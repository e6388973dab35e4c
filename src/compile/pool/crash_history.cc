#include "compile/pool/crash_history.h"

namespace kiln::compile {
namespace {

/// Covers the whole job, its limits included: a job with raised limits is tried again.
Digest identity(const Request& job) {
  return Digest::of(encode_request(job));
}

}  // namespace

std::optional<Error> CrashHistory::refusal(const Request& job) {
  {
    const MutexLock lock(mutex_);
    forget_old();
    if (kills_.empty())
      return std::nullopt;
  }
  const auto digest = identity(job);
  const MutexLock lock(mutex_);
  const auto found = kills_.find(digest);
  if (found == kills_.end() || found->second.count < kKillsBeforeRefusal)
    return std::nullopt;
  return found->second.error;
}

void CrashHistory::record(const Request& job, const Error& error) {
  const auto digest = identity(job);
  const MutexLock lock(mutex_);
  forget_old();
  Kills& kills = kills_[digest];
  ++kills.count;
  kills.last = clock_();
  kills.error = error;
}

void CrashHistory::forget_old() {
  const auto now = clock_();
  std::erase_if(kills_, [now](const auto& entry) {
    return now - entry.second.last >= kRefusedFor;
  });
}

}  // namespace kiln::compile
