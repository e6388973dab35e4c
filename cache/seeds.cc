#include "cache/seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <tuple>
#include <utility>

#include "cache/layout.h"
#include "cache/pack_identity.h"
#include "cache/seed_place.h"
#include "util/left_behind.h"
#include "util/log.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

constexpr std::uint64_t kLargestKeyFile = 65536;
constexpr std::uint64_t kLargestRecord = 65536;
// By the thread that is left behind: a mount that comes back until then is used.
constexpr std::chrono::minutes kMountPatience{1};
constexpr std::chrono::seconds kListingWait{2};

/// For transport only: an object in it cannot be found without all before it.
bool is_compressed(const std::filesystem::path& path) {
  return path.native().ends_with(".zst");
}

std::filesystem::path full_path(const std::filesystem::path& path) {
  std::error_code error;
  auto found = std::filesystem::absolute(path, error);
  return error ? path : found;
}

}  // namespace

Result<std::vector<PublicKey>> read_trusted_keys(FileSystem& file_system,
                                                 const TrustPolicy& trust,
                                                 const std::filesystem::path& path) {
  const std::filesystem::path place = full_path(path);
  KILN_TRY(trust.check_path(file_system, place));
  auto keys = parse_public_keys(KILN_TRY(read_text_file(place, kLargestKeyFile)));
  if (!keys)
    return fail(keys.error().code,
                fmt::format("{}: {}", place.native(), keys.error().message));
  return keys;
}

std::string silence(const std::filesystem::path& path, const FarMount& mount) {
  return fmt::format("{} gives no answer: is the mount dead ({})?", path.native(),
                     to_string(mount));
}

/// What calls that are left behind use of the service.
struct Seeds::Shared {
  SeedOptions options;
  FileSystem& file_system;
  TrustPolicy trust;
  std::shared_ptr<Counters> counters;
};

/// A pack, or a root; or neither, with the reason.
class Seeds::Seed {
 public:
  Seed(const std::filesystem::path& text, std::shared_ptr<const Shared> shared)
      : place_(parse_seed(text)),
        path_(full_path(place_ ? place_->path : text)),
        shared_(std::move(shared)) {
    state_.path = path_;
  }

  /// The mount that may be dead; null: it is local.
  [[nodiscard]] const FarMount* far() {
    const MutexLock lock(place_mutex_);
    if (!std::exchange(is_located_, true))
      far_ = far_mount_of(path_);
    return far_ ? &*far_ : nullptr;
  }

  /// Of one whose mount gave no answer.
  [[nodiscard]] bool is_silent() const { return is_silent_; }
  void set_silent(bool silent) {
    if (silent && !is_silent_.exchange(true)) {
      counters().add(Counter::kSeedRefused);
      log(LogLevel::kWarning, {"a seed is not used: ", silence(path_, *far_)});
    } else if (!silent) {
      is_silent_ = false;
    }
  }

  /// At the first call; others wait meanwhile.
  void open_once() {
    const MutexLock lock(open_mutex_);
    if (std::exchange(is_open_, true))
      return;
    if (auto done = open_here(); !done) {
      state_.error = std::move(done).error();
      counters().add(state_.error->code == ErrorCode::kUntrusted
                         ? Counter::kUntrusted
                         : Counter::kSeedRefused);
      log(LogLevel::kWarning, {"a seed is not used: ", state_.error->message});
    }
  }

  [[nodiscard]] std::optional<StoredObject> find(const Digest& key,
                                                 std::string_view target) {
    auto found = read(key);
    if (!found || !*found) {
      if (!found)
        refuse(key, found.error());
      return std::nullopt;
    }
    StoredObject& object = **found;
    if (!target.empty() && object.target() != target) {
      refuse(key, {Check::kTarget,
                   fmt::format("it is for {}, not for {}", object.target(), target)});
      return std::nullopt;
    }
    if (shared_->options.payload_check) {
      if (const auto checked = shared_->options.payload_check(object); !checked) {
        refuse(key, {Check::kPayload, checked.error().message});
        return std::nullopt;
      }
    }
    return std::move(object);
  }

  [[nodiscard]] std::vector<std::string> toolchains() const {
    if (pack_ != nullptr)
      return pack_->toolchains();
    if (store_ == nullptr)
      return {};
    const std::filesystem::path record = layout_->recorded_toolchain();
    if (!shared_->trust.check_path(shared_->file_system, record))
      return {};
    auto text = read_text_file(record, kLargestRecord);
    return text ? std::vector{*std::move(text)} : std::vector<std::string>();
  }

  [[nodiscard]] const SeedState& state() const { return state_; }
  /// True but for the first call.
  [[nodiscard]] bool say_once() { return has_said_age_.exchange(true); }
  /// The same of one that is silent: what is being opened must not be read.
  [[nodiscard]] SeedState silent_state() const {
    return {.path = path_,
            .error = Error{ErrorCode::kUnavailable, silence(path_, *far_)}};
  }

 private:
  using Found = tl::expected<std::optional<StoredObject>, Rejection>;

  [[nodiscard]] Counters& counters() { return *shared_->counters; }

  Result<void> open_here() {
    const SeedPlace place = KILN_TRY(place_);
    const std::filesystem::path& path = path_;
    // By a process first: a thread that hangs in a dead mount can keep this one from
    // ending.
    if (far_ && shared_->options.ask_mount &&
        !shared_->options.ask_mount(path, *far_, kMountPatience))
      return fail(ErrorCode::kUnavailable, silence(path, *far_));
    FileSystem& file_system = shared_->file_system;
    struct stat info {};
    const int err = file_system.stat(path.c_str(), info);
    if (err != 0 || !S_ISDIR(info.st_mode))
      return open_pack();
    if (place.is_signed || place.min_serial != 0)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} is a folder: signed=1 and min_serial are for packs, "
                              "since a folder has neither signature nor serial",
                              path.native()));
    layout_.emplace(path);
    KILN_TRY(shared_->trust.check_path(file_system, layout_->objects()));
    if (file_system.stat(layout_->objects().c_str(), info) != 0)
      return fail(
          ErrorCode::kNotFound,
          fmt::format("{} is a folder without objects of this format", path.native()));
    // Its own counters: what it quarantined or marked would be the seed's, and what it
    // finds is counted here.
    store_ = std::make_unique<ObjectStore>(
        *layout_, file_system, shared_->trust, store_counters_,
        ObjectStoreOptions{.access = Access::kReadOnly});
    return {};
  }

  Result<void> open_pack() {
    if (is_compressed(state_.path))
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} is compressed: unpack it by zstd -d, or into the "
                              "cache by kiln unpack",
                              state_.path.native()));
    state_.is_pack = true;
    std::vector<PublicKey> keys;
    if (!shared_->options.keys.empty())
      keys = KILN_TRY(read_trusted_keys(shared_->file_system, shared_->trust,
                                        shared_->options.keys));
    pack_ = KILN_TRY(open_wanted(keys));
    state_.objects = pack_->object_count();
    state_.bytes = pack_->size_bytes();
    state_.header = pack_->header();
    if (const auto& bad = pack_->bad_rows(); !bad.empty()) {
      state_.bad_rows = bad.size();
      counters().add(Counter::kSeedRefused, bad.size());
      log(LogLevel::kWarning,
          {"rows of the seed ", state_.path.native(),
           " that are not used: ", std::to_string(bad.size()), "; the first, of ",
           bad.front().key.hex(), ": ", bad.front().why});
    }
    return {};
  }

  /// What its place asks for, or an error.
  [[nodiscard]] Result<std::unique_ptr<const Pack>> open_wanted(
      const std::vector<PublicKey>& keys) const {
    auto pack = Pack::open(path_, {.file_system = shared_->file_system,
                                   .trust = shared_->trust,
                                   .keys = keys,
                                   .needs_signature = place_->is_signed});
    if (!pack && pack.error().code == ErrorCode::kUntrusted && place_->is_signed)
      pack.error().message += " (signed=1)";
    if (pack && place_->is_signed)
      KILN_TRY(about(path_.native(),
                     check_pack_is((*pack)->header().name, path_.filename().native())));
    if (pack && (*pack)->header().serial < place_->min_serial)
      return fail(
          ErrorCode::kUntrusted,
          fmt::format("{}: its serial is {}, and min_serial={} asks for a newer "
                      "pack",
                      path_.native(), (*pack)->header().serial, place_->min_serial));
    return pack;
  }

  [[nodiscard]] Found read(const Digest& key) const {
    if (pack_ != nullptr) {
      const auto row = pack_->find(key);
      if (!row)
        return std::nullopt;
      return pack_->read(*row).map(
          [](StoredObject&& object) { return std::optional(std::move(object)); });
    }
    if (store_ == nullptr)
      return std::nullopt;
    auto object = store_->inspect(key);
    if (!object)
      return tl::unexpected(Rejection{Check::kChecksum, object.error().message});
    if (*object) {
      if (auto verified = (*object)->verify_fully(); !verified)
        return tl::unexpected(std::move(verified).error());
    }
    return *std::move(object);
  }

  void refuse(const Digest& key, const Rejection& why) {
    counters().add_corrupt(why.check);
    counters().add(Counter::kSeedRefused);
    if (!has_warned_.exchange(true))
      log(LogLevel::kWarning,
          {"the object ", key.hex(), " of the seed ", state_.path.native(),
           " is not used (", to_string(why.check), "): ", why.detail});
  }

  const Result<SeedPlace> place_;
  const std::filesystem::path path_;
  const std::shared_ptr<const Shared> shared_;
  Mutex place_mutex_;
  bool is_located_ KILN_GUARDED_BY(place_mutex_) = false;
  std::optional<FarMount> far_;  // constant once is_located_
  std::atomic<bool> is_silent_{false};
  Mutex open_mutex_;
  bool is_open_ KILN_GUARDED_BY(open_mutex_) = false;
  // Constant once is_open_.
  SeedState state_;
  Counters store_counters_;
  std::unique_ptr<const Pack> pack_;
  std::optional<Layout> layout_;
  std::unique_ptr<ObjectStore> store_;
  std::atomic<bool> has_warned_{false};
  std::atomic<bool> has_said_age_{false};
};

Seeds::Seeds(SeedOptions options, FileSystem& file_system, TrustPolicy trust,
             std::shared_ptr<Counters> counters)
    : shared_(std::make_shared<const Shared>(Shared{
          std::move(options), file_system, std::move(trust), std::move(counters)})),
      seeds_([this] {
        std::vector<std::shared_ptr<Seed>> seeds;
        for (const std::filesystem::path& place : shared_->options.places)
          seeds.push_back(std::make_shared<Seed>(place, shared_));
        return seeds;
      }()),
      wait_(shared_->options.wait) {}

Seeds::~Seeds() = default;

/// nullopt: it does not answer.
template <typename T, typename Question>
std::optional<T> Seeds::ask(const std::shared_ptr<Seed>& seed, Question question,
                            std::chrono::milliseconds limit) {
  if (seed->far() == nullptr) {
    seed->open_once();
    say_age(*seed);
    return question(*seed);
  }
  if (seed->is_silent())
    return std::nullopt;
  auto answer = call_or_leave<T>(
      [seed, question = std::move(question)] {
        seed->open_once();
        return question(*seed);
      },
      limit, [seed](bool silent) { seed->set_silent(silent); });
  if (answer)
    say_age(*seed);
  return answer;
}

/// Of one that is open.
void Seeds::say_age(Seed& seed) const {
  const SeedState& state = seed.state();
  if (seed.say_once() || !state.is_pack || state.error)
    return;
  const auto last = newer_taken(taken_, state.header, state.path.filename().native());
  if (last)
    log(LogLevel::kWarning,
        {"the seed ", state.path.native(), " has ", order_text(state.header),
         ", and this cache has taken ", order_text(*last),
         " of that name. The seed is used; ;min_serial=", std::to_string(last->serial),
         " behind its path refuses it"});
}

void Seeds::pass_over(const Digest& key) {
  const MutexLock lock(mutex_);
  passed_over_.insert(key);
}

std::optional<StoredObject> Seeds::find(const Digest& key, std::string_view target) {
  {
    const MutexLock lock(mutex_);
    if (passed_over_.contains(key))
      return std::nullopt;
  }
  const auto find = [key, target = std::string(target)](Seed& seed) {
    return seed.find(key, target);
  };
  for (const auto& seed : seeds_) {
    auto found = ask<std::optional<StoredObject>>(seed, find, wait_.load());
    if (found && *found)
      return *std::move(found);
  }
  return std::nullopt;
}

std::vector<std::string> Seeds::toolchains(SeedPlaces places) {
  std::vector<std::string> records;
  const auto read = [](Seed& seed) { return seed.toolchains(); };
  for (const auto& seed : seeds_) {
    if (places == SeedPlaces::kLocal && seed->far() != nullptr)
      continue;
    auto found = ask<std::vector<std::string>>(seed, read, wait_.load());
    if (found)
      std::ranges::move(*found, std::back_inserter(records));
  }
  return records;
}

std::vector<SeedState> Seeds::states() {
  std::vector<SeedState> states;
  const auto read = [](Seed& seed) { return seed.state(); };
  for (const auto& seed : seeds_) {
    auto state = ask<SeedState>(seed, read, kListingWait);
    states.push_back(state ? *std::move(state) : seed->silent_state());
  }
  return states;
}

}  // namespace kiln::cache
