#include "tests/fault/power_loss/crash_states.h"

#include <algorithm>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "tests/support/fault_length.h"

namespace kiln::test {
namespace {

using Kind = Operation::Kind;
using Picks = std::vector<std::size_t>;  // an outcome for each undecided thing

constexpr std::size_t kSector = 512;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kManySectors = 32;
constexpr std::size_t kTorn = 257;  // into a sector, at no round address
constexpr std::size_t kRandomContents = 16;
constexpr std::uint64_t kSeed = 13;

constexpr std::size_t kThere = 0;  // the first outcome of everything
constexpr std::size_t kLost = 1;
// Of a rename alone:
constexpr std::size_t kBothNames = 2;
constexpr std::size_t kNoName = 3;

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t limit) {
  return static_cast<std::size_t>(random() % limit);
}

Bytes garbage(std::size_t size) {
  Random random(kSeed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xFFU);
  return bytes;
}

void overwrite(Bytes& bytes, const Operation& write) {
  const std::size_t end = write.offset + write.bytes.size();
  bytes.resize(std::max(bytes.size(), end));
  std::ranges::copy(write.bytes,
                    bytes.begin() + static_cast<std::ptrdiff_t>(write.offset));
}

/// `bytes` with those from `begin` to `end` taken from `source`, as far as it has them.
void take(Bytes& bytes, const Bytes& source, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < std::min({end, source.size(), bytes.size()}); ++i)
    bytes[i] = source[i];
}

bool is_of_names(Kind kind) {
  return kind <= Kind::kMakeFolder;
}

void apply_to_names(const Operation& operation, std::size_t pick, Disk& disk) {
  const bool there = pick == kThere;
  if (operation.kind == Kind::kCreate && there)
    disk.names[operation.name] = operation.file;
  if (operation.kind == Kind::kLink && there)
    disk.names[operation.to] = operation.file;
  if (operation.kind == Kind::kUnlink && there)
    disk.names.erase(operation.name);
  if (operation.kind == Kind::kMakeFolder && there)
    disk.folders.emplace(operation.name, 0);
  if (operation.kind != Kind::kRename)
    return;
  if (const auto old = disk.names.find(operation.name); (there || pick == kNoName) &&
                                                        old != disk.names.end() &&
                                                        old->second == operation.file)
    disk.names.erase(old);
  if (there || pick == kBothNames)
    disk.names[operation.to] = operation.file;
}

/// Undecided bytes replace those that this writes.
void apply_to_file(const Operation& operation, std::size_t pick, Disk& disk) {
  File& file = disk.files[operation.file];
  if (operation.kind == Kind::kCreate)
    file.mode = operation.mode;
  if (operation.kind == Kind::kWrite)
    overwrite(file.bytes, operation);
  if (operation.kind == Kind::kMode && pick == kThere)
    file.mode = operation.mode;
  if (operation.kind == Kind::kTime && pick == kThere)
    file.mtime_ns = operation.mtime_ns;
}

/// Everything that can have become of one prefix of the log.
class Prefix {
 public:
  Prefix(const Disk& before, std::span<const Operation> log, const Bytes& stale)
      : before_(before), log_(log) {
    for (std::size_t i = 0; i < log_.size(); ++i) {
      if (log_[i].kind == Kind::kAcknowledge)
        acknowledged_.insert(static_cast<int>(log_[i].offset));
      else if (is_undecided(i))
        undecide(i);
    }
    for (auto& [file, contents] : contents_) settle_contents(file, contents, stale);
  }

  [[nodiscard]] CrashState state(const Picks& picks) const {
    CrashState state{before_, log_.size(), acknowledged_};
    for (std::size_t i = 0; i < log_.size(); ++i) {
      const auto place = places_.find(i);
      const std::size_t pick = place == places_.end() ? kThere : picks[place->second];
      apply_to_names(log_[i], pick, state.disk);
      apply_to_file(log_[i], pick, state.disk);
    }
    std::size_t place = places_.size();
    for (const auto& [file, contents] : contents_)
      state.disk.files[file].bytes = contents[picks[place++]];
    state.disk.prune();
    return state;
  }

  /// Names, modes and times first, then the files with data.
  [[nodiscard]] std::size_t names() const { return places_.size(); }
  [[nodiscard]] Picks outcomes() const {
    Picks outcomes(places_.size());
    for (const auto& [operation, place] : places_)
      outcomes[place] = log_[operation].kind == Kind::kRename ? kNoName + 1 : kLost + 1;
    for (const auto& [file, contents] : contents_) outcomes.push_back(contents.size());
    return outcomes;
  }

 private:
  [[nodiscard]] bool is_undecided(std::size_t i) const {
    const Operation& it = log_[i];
    return std::none_of(
        log_.begin() + static_cast<std::ptrdiff_t>(i), log_.end(),
        [&](const Operation& later) {
          if (it.kind == Kind::kWrite)
            return later.kind == Kind::kSyncFile && later.file == it.file;
          if (later.kind != Kind::kSyncFolder || !is_of_names(it.kind))
            return false;
          // A rename is durable in full once the folder of its new name is.
          return later.name == folder_of(it.to.empty() ? it.name : it.to);
        });
  }

  void undecide(std::size_t i) {
    const Operation& operation = log_[i];
    if (operation.kind == Kind::kWrite)
      contents_[operation.file];
    else if (is_of_names(operation.kind) || operation.kind == Kind::kMode ||
             operation.kind == Kind::kTime)
      places_.emplace(i, places_.size());
  }

  /// Each write starts from the bytes before it, so that what a later one can leave
  /// behind includes each earlier one alone.
  void settle_contents(FileNumber file, std::vector<Bytes>& contents,
                       const Bytes& stale) const {
    Bytes durable;
    if (const auto old = before_.files.find(file); old != before_.files.end())
      durable = old->second.bytes;
    std::vector<const Operation*> pending;
    for (std::size_t i = 0; i < log_.size(); ++i) {
      if (log_[i].kind != Kind::kWrite || log_[i].file != file)
        continue;
      if (is_undecided(i))
        pending.push_back(&log_[i]);
      else
        overwrite(durable, log_[i]);
    }
    Bytes after = durable;
    for (const Operation* write : pending) {
      overwrite(after, *write);
      std::vector<Bytes> more = torn_contents(durable, after, stale);
      // The newest first: outcome 0 is that everything is there.
      contents.insert(contents.begin(), std::make_move_iterator(more.begin()),
                      std::make_move_iterator(more.end()));
    }
  }

  const Disk& before_;
  const std::span<const Operation> log_;
  std::set<int> acknowledged_;
  std::map<std::size_t, std::size_t> places_;  // of an operation, among the picks
  std::map<FileNumber, std::vector<Bytes>> contents_;  // what each can hold
};

/// Counts up, the first place fastest; false once all have been.
bool next(Picks& picks, const Picks& outcomes, std::size_t places) {
  for (std::size_t i = 0; i < places; ++i) {
    if (++picks[i] < outcomes[i])
      return true;
    picks[i] = 0;
  }
  return false;
}

std::size_t product(const Picks& outcomes, std::size_t places, std::size_t limit) {
  std::size_t all = 1;
  for (std::size_t i = 0; i < places && all <= limit; ++i) all *= outcomes[i];
  return all;
}

template <typename Visit>
void for_each_pick(const Prefix& prefix, std::size_t combinations, const Visit& visit) {
  const Picks outcomes = prefix.outcomes();
  const std::size_t names = prefix.names();
  Random random(kSeed);
  const auto draw = [&](std::size_t places) {
    Picks picks(outcomes.size());
    for (std::size_t i = 0; i < places; ++i) picks[i] = below(random, outcomes[i]);
    return picks;
  };
  Picks picks(outcomes.size());
  if (product(outcomes, names, combinations) <= combinations) {
    do visit(picks);
    while (next(picks, outcomes, names));
  } else {
    for (std::size_t i = 0; i < combinations; ++i) visit(draw(names));
  }
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const std::size_t tried = std::min(outcomes[i], combinations);
    for (std::size_t n = 0; n < tried; ++n) {
      Picks one(outcomes.size());
      one[i] = tried == outcomes[i] ? n : below(random, outcomes[i]);
      visit(one);
    }
  }
  if (names < outcomes.size()) {
    for (std::size_t i = 0; i < combinations; ++i) visit(draw(outcomes.size()));
  }
}

/// What a disk that was in use may hold where new sectors were never written: the
/// longest file of before, else of the log.
Bytes stale_bytes(const Disk& before, const Log& log) {
  Bytes longest;
  for (const auto& [number, file] : before.files) {
    if (file.bytes.size() > longest.size())
      longest = file.bytes;
  }
  for (const Operation& operation : log) {
    if (before.files.empty() && operation.bytes.size() > longest.size())
      longest = operation.bytes;
  }
  return longest;
}

}  // namespace

std::vector<Bytes> torn_contents(const Bytes& before, const Bytes& after,
                                 const Bytes& stale) {
  std::vector<Bytes> contents{after, before};
  Bytes never_written(after.size());  // the new size, and old bytes, then zeros
  take(never_written, before, 0, before.size());
  const auto unwritten = [&](const Bytes& source) {
    Bytes bytes = source;
    bytes.resize(after.size());
    take(bytes, before, 0, before.size());
    return bytes;
  };
  const std::vector<Bytes> kinds{never_written, unwritten(garbage(after.size())),
                                 unwritten(stale)};
  const std::size_t step = after.size() > kManySectors * kSector ? kPage : kSector;
  for (std::size_t sector = 0; sector <= after.size(); sector += step) {
    for (const std::size_t cut : {sector, std::min(sector + kTorn, after.size())}) {
      Bytes shorter(after.begin(), after.begin() + static_cast<std::ptrdiff_t>(cut));
      if (before.size() > cut)
        shorter.insert(shorter.end(), before.begin() + static_cast<std::ptrdiff_t>(cut),
                       before.end());
      contents.push_back(std::move(shorter));
    }
    for (const Bytes& kind : kinds) {
      take(contents.emplace_back(kind), after, 0, sector);
      take(contents.emplace_back(kind), after, sector, after.size());
    }
  }
  Random random(kSeed);
  for (std::size_t i = 0; i < kRandomContents * fault_length(); ++i) {
    Bytes& bytes = contents.emplace_back(kinds[i % kinds.size()]);
    for (std::size_t at = 0; at < after.size(); at += step) {
      if (below(random, 2) == 0)
        take(bytes, after, at, at + step);
    }
  }
  std::set<std::string> seen;
  std::erase_if(contents, [&](const Bytes& bytes) {
    return !seen.emplace(as_text(bytes)).second;
  });
  return contents;
}

std::size_t for_each_crash_state(const Disk& before, const Log& log,
                                 std::size_t combinations,
                                 const std::function<void(const CrashState&)>& visit) {
  const Bytes stale = stale_bytes(before, log);
  std::set<std::pair<std::string, std::set<int>>> seen;
  for (std::size_t length = 0; length <= log.size(); ++length) {
    const Prefix prefix(before, std::span(log).first(length), stale);
    for_each_pick(prefix, combinations, [&](const Picks& picks) {
      const CrashState state = prefix.state(picks);
      if (seen.emplace(state.disk.fingerprint(), state.acknowledged).second)
        visit(state);
    });
  }
  return seen.size();
}

}  // namespace kiln::test
