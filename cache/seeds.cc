#include "cache/seeds.h"

#include <fmt/format.h>

#include <atomic>
#include <tuple>
#include <utility>

#include "cache/layout.h"
#include "util/log.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

constexpr std::uint64_t kLargestKeyFile = 65536;
constexpr std::uint64_t kLargestRecord = 65536;

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

/// A pack, or a root; or neither, with the reason.
class Seeds::Seed {
 public:
  Seed(std::filesystem::path path, const Seeds& seeds)
      : state_{.path = std::move(path)}, counters_(seeds.counters_) {
    if (auto done = open(seeds); !done) {
      state_.error = std::move(done).error();
      counters_.add(state_.error->code == ErrorCode::kUntrusted
                        ? Counter::kUntrusted
                        : Counter::kSeedRefused);
      log(LogLevel::kWarning, {"a seed is not used: ", state_.error->message});
    }
  }

  [[nodiscard]] std::optional<StoredObject> find(const Digest& key,
                                                 std::string_view target,
                                                 const PayloadCheck& check) {
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
    if (check) {
      if (const auto checked = check(object); !checked) {
        refuse(key, {Check::kPayload, checked.error().message});
        return std::nullopt;
      }
    }
    return std::move(object);
  }

  [[nodiscard]] std::vector<std::string> toolchains(FileSystem& file_system,
                                                    const TrustPolicy& trust) const {
    if (pack_ != nullptr)
      return pack_->toolchains();
    if (store_ == nullptr)
      return {};
    const std::filesystem::path record = layout_->recorded_toolchain();
    if (!trust.check_path(file_system, record))
      return {};
    auto text = read_text_file(record, kLargestRecord);
    return text ? std::vector{*std::move(text)} : std::vector<std::string>();
  }

  [[nodiscard]] const SeedState& state() const { return state_; }

 private:
  using Found = tl::expected<std::optional<StoredObject>, Rejection>;

  Result<void> open(const Seeds& seeds) {
    const std::filesystem::path& path = state_.path;
    FileSystem& file_system = seeds.file_system_;
    struct stat info {};
    const int err = file_system.stat(path.c_str(), info);
    if (err != 0 || !S_ISDIR(info.st_mode))
      return open_pack(seeds);
    layout_.emplace(path);
    KILN_TRY(seeds.trust_.check_path(file_system, layout_->objects()));
    if (file_system.stat(layout_->objects().c_str(), info) != 0)
      return fail(
          ErrorCode::kNotFound,
          fmt::format("{} is a folder without objects of this format", path.native()));
    // Its own counters: what it quarantined or marked would be the seed's, and what it
    // finds is counted here.
    store_ = std::make_unique<ObjectStore>(
        *layout_, file_system, seeds.trust_, store_counters_,
        ObjectStoreOptions{.access = Access::kReadOnly});
    return {};
  }

  Result<void> open_pack(const Seeds& seeds) {
    if (is_compressed(state_.path))
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} is compressed: unpack it by zstd -d, or into the "
                              "cache by kiln unpack",
                              state_.path.native()));
    state_.is_pack = true;
    std::vector<PublicKey> keys;
    if (!seeds.options_.keys.empty())
      keys = KILN_TRY(
          read_trusted_keys(seeds.file_system_, seeds.trust_, seeds.options_.keys));
    pack_ = KILN_TRY(Pack::open(
        state_.path,
        {.file_system = seeds.file_system_, .trust = seeds.trust_, .keys = keys}));
    state_.objects = pack_->object_count();
    state_.bytes = pack_->size_bytes();
    state_.header = pack_->header();
    if (const auto& bad = pack_->bad_rows(); !bad.empty()) {
      state_.bad_rows = bad.size();
      counters_.add(Counter::kSeedRefused, bad.size());
      log(LogLevel::kWarning,
          {"rows of the seed ", state_.path.native(),
           " that are not used: ", std::to_string(bad.size()), "; the first, of ",
           bad.front().key.hex(), ": ", bad.front().why});
    }
    return {};
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
    counters_.add_corrupt(why.check);
    counters_.add(Counter::kSeedRefused);
    if (!has_warned_.exchange(true))
      log(LogLevel::kWarning,
          {"the object ", key.hex(), " of the seed ", state_.path.native(),
           " is not used (", to_string(why.check), "): ", why.detail});
  }

  SeedState state_;
  Counters& counters_;
  Counters store_counters_;
  std::unique_ptr<const Pack> pack_;
  std::optional<Layout> layout_;
  std::unique_ptr<ObjectStore> store_;
  std::atomic<bool> has_warned_{false};
};

Seeds::Seeds(SeedOptions options, FileSystem& file_system, const TrustPolicy& trust,
             Counters& counters)
    : options_(std::move(options)),
      file_system_(file_system),
      trust_(trust),
      counters_(counters) {}

Seeds::~Seeds() = default;

const std::vector<std::unique_ptr<Seeds::Seed>>& Seeds::opened() {
  const MutexLock lock(mutex_);
  if (!std::exchange(is_open_, true)) {
    for (const std::filesystem::path& place : options_.places)
      seeds_.push_back(std::make_unique<Seed>(full_path(place), *this));
  }
  return seeds_;
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
  for (const auto& seed : opened()) {
    if (auto object = seed->find(key, target, options_.payload_check))
      return object;
  }
  return std::nullopt;
}

std::vector<std::string> Seeds::toolchains() {
  std::vector<std::string> records;
  for (const auto& seed : opened()) {
    for (std::string& record : seed->toolchains(file_system_, trust_))
      records.push_back(std::move(record));
  }
  return records;
}

std::vector<SeedState> Seeds::states() {
  std::vector<SeedState> states;
  for (const auto& seed : opened()) states.push_back(seed->state());
  return states;
}

}  // namespace kiln::cache
