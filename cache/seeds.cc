#include "cache/seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "cache/layout.h"
#include "cache/pack_identity.h"
#include "cache/seed_place.h"
#include "util/absolute_path.h"
#include "util/left_behind.h"
#include "util/log.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

constexpr std::uint64_t kLargestRecord = 65536;
// By the thread that is left behind: a mount that comes back until then is used.
constexpr std::chrono::minutes kMountPatience{1};
constexpr std::chrono::seconds kListingWait{2};

}  // namespace

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
  OwnFolder taken{};  // constant after set_taken()
};

/// A pack, or a root; or neither, with the reason.
class Seeds::Seed {
 public:
  Seed(const std::filesystem::path& text, std::shared_ptr<const Shared> shared)
      : place_(parse_seed(text)),
        path_(absolute_path(place_ ? place_->path : text)),
        shared_(std::move(shared)),
        state_{.path = path_} {}

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
    if (!is_silent_.exchange(silent) && silent)
      tell_unused(*silent_state().error);
  }

  /// At the first call; others wait meanwhile.
  void open_once() {
    const MutexLock lock(open_mutex_);
    if (std::exchange(is_open_, true))
      return;
    if (auto done = open_here(); !done) {
      state_.error = std::move(done).error();
      tell_unused(*state_.error);
    }
  }

  struct Given {
    StoredObject object;
    Origin origin;
  };
  [[nodiscard]] std::optional<Given> find(const Digest& key, std::string_view target) {
    auto origin = origin_of(key);
    if (!origin)
      return std::nullopt;
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
    return Given{std::move(object), *std::move(origin)};
  }

  [[nodiscard]] std::vector<std::string> toolchains() {
    if (pack_ != nullptr)
      return state().error ? std::vector<std::string>() : pack_->toolchains();
    if (store_ == nullptr)
      return {};
    const std::filesystem::path record = layout_->recorded_toolchain();
    if (!shared_->trust.check_path(shared_->file_system, record))
      return {};
    auto text = read_text_file(record, kLargestRecord);
    return text ? std::vector{*std::move(text)} : std::vector<std::string>();
  }

  [[nodiscard]] SeedState state() {
    SeedState state = state_;
    const MutexLock lock(trust_mutex_);
    if (!state.error)
      check_trust();
    if (!state.error && !signers_)
      state.error = signers_.error();
    return state;
  }
  /// The same of one that is silent: what is being opened must not be read.
  [[nodiscard]] SeedState silent_state() const {
    return {.path = path_,
            .error = Error{ErrorCode::kUnavailable, silence(path_, *far_)}};
  }

 private:
  using Found = tl::expected<std::optional<StoredObject>, Rejection>;

  [[nodiscard]] Counters& counters() { return *shared_->counters; }

  void tell_unused(const Error& why) {
    counters().add(why.code == ErrorCode::kUntrusted ? Counter::kUntrusted
                                                     : Counter::kSeedRefused);
    log(LogLevel::kWarning, {"a seed is not used: ", why.message});
  }

  Result<void> open_here() {
    const SeedPlace place = KILN_TRY(place_);
    // By a process first: a thread that hangs in a dead mount can keep this one from
    // ending.
    if (far_ && shared_->options.ask_mount &&
        !shared_->options.ask_mount(path_, *far_, kMountPatience))
      return fail(ErrorCode::kUnavailable, silence(path_, *far_));
    FileSystem& file_system = shared_->file_system;
    struct stat info {};
    const int err = file_system.stat(path_.c_str(), info);
    if (err != 0 || !S_ISDIR(info.st_mode))
      return open_pack();
    if (place.is_signed || place.min_serial != 0 || place.refuses_older)
      return kiln::refuse(
          "{} is a folder: signed=1, min_serial and older=refuse are "
          "for packs, since a folder has neither signature nor serial",
          path_.native());
    layout_.emplace(path_);
    KILN_TRY(shared_->trust.check_path(file_system, layout_->objects()));
    if (file_system.stat(layout_->objects().c_str(), info) != 0)
      return fail(ErrorCode::kNotFound, "{} is a folder without objects of this format",
                  path_.native());
    // Its own counters: what it quarantined or marked would be the seed's, and what it
    // finds is counted here.
    store_ = std::make_unique<ObjectStore>(
        *layout_, file_system, shared_->trust, store_counters_,
        ObjectStoreOptions{.access = Access::kReadOnly});
    return {};
  }

  Result<void> open_pack() {
    if (path_.native().ends_with(".zst"))  // no object is found without all before it
      return kiln::refuse(
          "{} is compressed: unpack it by zstd -d, or into the "
          "cache by kiln unpack",
          path_.native());
    state_.is_pack = true;
    // Who signed it is looked at whenever the keys have changed.
    pack_ = KILN_TRY(Pack::open(
        path_, {.file_system = shared_->file_system, .trust = shared_->trust}));
    state_.objects = pack_->object_count();
    state_.bytes = pack_->size_bytes();
    state_.header = pack_->header();
    if (const auto& bad = pack_->bad_rows(); !bad.empty()) {
      state_.bad_rows = bad.size();
      counters().add(Counter::kSeedRefused, bad.size());
      log(LogLevel::kWarning,
          {"rows of the seed ", path_.native(),
           " that are not used: ", std::to_string(bad.size()), "; the first, of ",
           bad.front().key.hex(), ": ", bad.front().why});
    }
    return {};
  }

  /// Who signed it, if it is what its place asks for. `keys` may be null.
  [[nodiscard]] Result<std::vector<KeyId>> check_pack(const TrustedKeys* keys) const {
    const PackHeader& header = pack_->header();
    std::vector<KeyId> signers;
    if (place_->is_signed || (keys != nullptr && !pack_->signatures().empty())) {
      auto by = pack_->check_signers(keys != nullptr ? *keys : TrustedKeys());
      if (!by)
        return fail(by.error().code, "{}{}", by.error().message,
                    place_->is_signed ? " (signed=1)" : "");
      signers = *std::move(by);
    }
    if (place_->is_signed)
      KILN_TRY(check_pack_is(header.name, path_.filename().native()));
    if (header.serial < place_->min_serial)
      return fail(ErrorCode::kUntrusted,
                  "its serial is {}, and min_serial={} asks for a newer pack",
                  header.serial, place_->min_serial);
    const auto last = newer_taken(shared_->taken, header, path_.filename().native());
    if (last && place_->refuses_older)
      return fail(ErrorCode::kUntrusted,
                  "it has {}, and this cache has taken {} of that name "
                  "(older=refuse)",
                  order_text(header), order_text(*last));
    if (last && !has_said_age_.exchange(true))
      log(LogLevel::kWarning, {"the seed ", path_.native(), " has ", order_text(header),
                               ", and this cache has taken ", order_text(*last),
                               " of that name. The seed is used; ;older=refuse ",
                               "behind its path refuses it"});
    return signers;
  }

  /// By the keys as they are now; says once why it is not used.
  void check_trust() KILN_REQUIRES(trust_mutex_) {
    auto keys = shared_->options.keys == nullptr ? Result<KeyFile::Keys>()
                                                 : shared_->options.keys->keys();
    if (keys && has_checked_ && *keys == checked_by_)
      return;
    has_checked_ = keys.has_value();
    checked_by_ = keys ? *keys : nullptr;
    auto signers = keys ? Result<std::vector<KeyId>>()
                        : fail(keys.error().code, keys.error().message);
    if (keys && pack_ != nullptr)
      signers = about(path_.native(), check_pack(checked_by_.get()));
    if (!signers && (signers_ || signers_.error().message != signers.error().message))
      tell_unused(signers.error());
    signers_ = std::move(signers);
  }

  /// Of an object that it may give; nullopt: it must not.
  [[nodiscard]] std::optional<Origin> origin_of(const Digest& key) {
    const MutexLock lock(trust_mutex_);
    check_trust();
    if (!signers_)
      return std::nullopt;
    if (checked_by_ != nullptr && checked_by_->revoked_objects.contains(key))
      return std::nullopt;
    return Origin{*signers_, pack_ == nullptr ? path_.native()
                                              : source_text(pack_->header(),
                                                            path_.filename().native())};
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
          {"the object ", key.hex(), " of the seed ", path_.native(), " is not used (",
           to_string(why.check), "): ", why.detail});
  }

  const Result<SeedPlace> place_;
  const std::filesystem::path path_;
  const std::shared_ptr<const Shared> shared_;
  Mutex place_mutex_;
  bool is_located_ KILN_GUARDED_BY(place_mutex_) = false;
  std::optional<FarMount> far_;  // constant once is_located_
  Mutex open_mutex_;
  bool is_open_ KILN_GUARDED_BY(open_mutex_) = false;
  // Constant once is_open_.
  SeedState state_;
  Counters store_counters_;
  std::unique_ptr<const Pack> pack_;
  std::optional<Layout> layout_;
  std::unique_ptr<ObjectStore> store_;
  std::atomic<bool> is_silent_{false};
  std::atomic<bool> has_warned_{false};
  mutable std::atomic<bool> has_said_age_{false};
  bool has_checked_ KILN_GUARDED_BY(trust_mutex_) = false;
  Mutex trust_mutex_;
  KeyFile::Keys checked_by_ KILN_GUARDED_BY(trust_mutex_);
  // Errors: why it is not used now.
  Result<std::vector<KeyId>> signers_ KILN_GUARDED_BY(trust_mutex_) =
      fail(ErrorCode::kUnavailable, "");
};

Seeds::Seeds(SeedOptions options, FileSystem& file_system, TrustPolicy trust,
             std::shared_ptr<Counters> counters)
    : shared_(std::make_shared<Shared>(Shared{std::move(options), file_system,
                                              std::move(trust), std::move(counters)})),
      seeds_([this] {
        std::vector<std::shared_ptr<Seed>> seeds;
        for (const std::filesystem::path& place : shared_->options.places)
          seeds.push_back(std::make_shared<Seed>(place, shared_));
        return seeds;
      }()),
      wait_(shared_->options.wait) {}

Seeds::~Seeds() = default;

void Seeds::set_taken(OwnFolder taken) {
  shared_->taken = std::move(taken);
}

/// nullopt: it does not answer.
template <typename T, typename Question>
std::optional<T> Seeds::ask(const std::shared_ptr<Seed>& seed, Question question,
                            std::chrono::milliseconds limit) {
  if (seed->far() == nullptr) {
    seed->open_once();
    return question(*seed);
  }
  if (seed->is_silent())
    return std::nullopt;
  return call_or_leave<T>(
      [seed, question = std::move(question)] {
        seed->open_once();
        return question(*seed);
      },
      limit, [seed](bool silent) { seed->set_silent(silent); });
}

void Seeds::pass_over(const Digest& key) {
  const MutexLock lock(mutex_);
  passed_over_.insert(key);
}

std::optional<StoredObject> Seeds::find(const Digest& key, std::string_view target,
                                        Origin* origin) {
  {
    const MutexLock lock(mutex_);
    if (passed_over_.contains(key))
      return std::nullopt;
  }
  using Given = std::optional<Seed::Given>;
  const auto find = [key, target = std::string(target)](Seed& seed) {
    return seed.find(key, target);
  };
  for (const auto& seed : seeds_) {
    auto found = ask<Given>(seed, find, wait_.load());
    if (!found || !*found)
      continue;
    if (origin != nullptr)
      *origin = std::move((*found)->origin);
    return std::move((*found)->object);
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
