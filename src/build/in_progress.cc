#include "build/in_progress.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <optional>
#include <tuple>
#include <utility>

#include "build/build_options.h"
#include "cache/owned_range.h"
#include "codec/field_codec.h"
#include "key/memo_file.h"
#include "util/folder_names.h"
#include "util/proc_file.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr key::MemosKept kKept{.newest = 4096, .age = std::chrono::hours(24)};
// A process that cannot be seen is believed for so long.
constexpr std::chrono::minutes kBelieved{15};

/// Tells pid namespaces apart.
std::uint64_t namespace_of_pids() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

struct ProcessState {
  char letter = '?';
  std::string started;  // in ticks since the boot
};

/// From /proc/PID/stat, whose second field, in brackets, may hold anything.
std::optional<ProcessState> state_of(pid_t pid) {
  const auto text = read_proc_file(fmt::format("/proc/{}/stat", pid));
  const std::size_t end = text ? text->rfind(") ") : std::string::npos;
  if (end == std::string::npos)
    return std::nullopt;
  constexpr int kStarted = 22 - 3;  // fields are counted from 1, and the third is first
  std::string_view rest = std::string_view(*text).substr(end + 2);
  ProcessState state{.letter = rest.empty() ? '?' : rest.front(), .started = {}};
  for (int i = 0; i < kStarted && !rest.empty(); ++i)
    rest.remove_prefix(std::min(rest.find(' ') + 1, rest.size()));
  state.started = rest.substr(0, rest.find(' '));
  return state;
}

/// What a file holds.
struct Note {
  std::string key;
  std::string label;
  std::string target;
  std::string phase;
  std::int64_t pid = 0;
  std::string started;     // of the process
  std::uint64_t pids = 0;  // the namespace of `pid`
  std::int64_t began_ns = 0;
};

constexpr auto kNoteFields = [](auto& codec, auto& note) {
  auto& [key, label, target, phase, pid, started, pids, began_ns] = note;
  codec("key", key);
  codec("label", label);
  codec("target", target);
  codec("phase", phase);
  codec("pid", pid);
  codec("started", started);
  codec("pids", pids);
  codec("began_ns", began_ns);
};

/// nullopt: its process has ended, or is in another container for long.
std::optional<InProgress> shown(const Note& note, const Digest& key) {
  InProgress shown{.key = key,
                   .label = note.label,
                   .target = note.target,
                   .phase = note.phase,
                   .pid = static_cast<pid_t>(note.pid)};
  const auto age = cache::boot_time_now() - nanoseconds(note.began_ns);
  shown.age = std::max(milliseconds(0), duration_cast<milliseconds>(age));
  if (note.pids != namespace_of_pids()) {
    shown.is_elsewhere = true;
    return shown.age < kBelieved ? std::optional(std::move(shown)) : std::nullopt;
  }
  const auto state = state_of(shown.pid);
  if (!state || state->started != note.started || state->letter == 'Z')
    return std::nullopt;
  shown.is_stopped = state->letter == 'T' || state->letter == 't';
  return shown;
}

}  // namespace

OwnFolder in_progress_folder(cache::Cache& cache) {
  return cache.lock_folder().usable()
             ? counted(cache, cache.lock_folder().path / "in_progress")
             : OwnFolder();
}

std::vector<InProgress> list_in_progress(const OwnFolder& folder) {
  std::vector<InProgress> all;
  if (folder.empty())
    return all;
  for (const std::string& name :
       folder_names(folder.path(), [](std::string_view) { return true; })) {
    const auto bytes = key::read_memo(folder, name);
    const auto fields = bytes ? Fields::decode(*bytes) : Fields();
    const auto note =
        fields ? read_fields<Note>(*fields, "a build in progress", kNoteFields)
               : tl::unexpected(fields.error());
    const auto key = note ? Digest::from_hex(note->key) : std::nullopt;
    if (!key)
      continue;  // just removed, or somebody else's
    if (auto one = shown(*note, *key)) {
      all.push_back(*std::move(one));
    } else if (note->pids == namespace_of_pids()) {
      std::error_code ignored;  // a read-only place
      fs::remove(folder.path() / name, ignored);
    }
  }
  std::ranges::sort(all, [](const InProgress& a, const InProgress& b) {
    const auto order = [](const InProgress& each) {
      return std::tuple(each.key, each.phase == kWaitingPhase, -each.age, each.pid);
    };
    return order(a) < order(b);
  });
  return all;
}

InProgressFile::InProgressFile(const OwnFolder& folder, const Digest& key,
                               std::string_view label, std::string_view target)
    : folder_(folder.empty() ? nullptr : &folder),
      key_(key),
      label_(label),
      target_(target),
      began_(cache::boot_time_now()) {}

InProgressFile::InProgressFile(InProgressFile&& other) noexcept
    : folder_(std::exchange(other.folder_, nullptr)),
      owner_(other.owner_),
      key_(other.key_),
      label_(std::move(other.label_)),
      target_(std::move(other.target_)),
      name_(std::exchange(other.name_, {})),
      phase_(std::move(other.phase_)),
      began_(other.began_) {}

InProgressFile::~InProgressFile() {
  if (folder_ == nullptr || name_.empty() || !owner_.is_this())
    return;
  std::error_code ignored;  // `kiln ps` sees that it is over
  fs::remove(folder_->path() / name_, ignored);
}

void InProgressFile::enter(std::string_view phase) {
  if (folder_ == nullptr || phase == phase_ || !owner_.is_this())
    return;
  static std::atomic<std::uint64_t> count = 0;
  if (name_.empty())
    name_ = fmt::format("{}.{}.{}", namespace_of_pids(), ::getpid(), ++count);
  phase_ = phase;
  const auto self = state_of(::getpid());
  const Note note{.key = key_.hex(),
                  .label = label_,
                  .target = target_,
                  .phase = phase_,
                  .pid = ::getpid(),
                  .started = self ? self->started : "",
                  .pids = namespace_of_pids(),
                  .began_ns = began_.count()};
  std::ignore =
      key::write_memo(*folder_, name_, fields_of(note, kNoteFields).encode(), kKept);
}

}  // namespace kiln
