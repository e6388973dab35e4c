#include "cache/cache.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

#include "cache/background.h"
#include "cache/sqlite.h"
#include "cache/unix_time.h"
#include "util/log.h"
#include "util/text.h"
#include "util/try.h"
#include "util/words.h"

namespace kiln::cache {
namespace {

constexpr std::size_t kShortestPrefix = 6;
constexpr std::size_t kMostCandidates = 8;

Entry entry_of(const StoredObject& object, Metadata&& metadata) {
  Entry entry = entry_of(object.key(), object.kind(), std::move(metadata));
  entry.size_bytes = object.file().size();
  entry.last_used_ns = unix_now_ns();
  return entry;
}

}  // namespace

std::unique_ptr<Cache> Cache::open(CacheOptions options) {
  std::unique_ptr<Cache> cache(new Cache(std::move(options)));
  cache->mode_ = cache->determine_mode();
  if (cache->mode_ == Mode::kOff && !cache->is_absent_ &&
      cache->options_.warns_when_off)
    log(LogLevel::kWarning, {"the cache is off, and kernels are kept in memory only: ",
                             cache->mode_reason_});
  if (cache->layout_.root() != cache->options_.root && !cache->is_absent_ &&
      cache->options_.warns_when_off)
    log(LogLevel::kWarning, {"cache: ", cache->place_reason_});
  cache->open_parts();
  return cache;
}

std::string_view to_string(Tier tier) {
  return word_of(tier, {"memory", "disk", "seed", "remote", "build"});
}

Cache::Cache(CacheOptions options)
    : options_(std::move(options)),
      file_system_(options_.file_system != nullptr ? options_.file_system
                                                   : &real_file_system()),
      layout_(options_.root),
      trust_(
          TrustPolicy::of_this_process(options_.trusted_uids, options_.trusted_gids)),
      seeds_(options_.seeds.empty()
                 ? nullptr
                 : std::make_unique<Seeds>(
                       SeedOptions{options_.seeds,
                                   options_.keys.empty()
                                       ? nullptr
                                       : std::make_shared<KeyFile>(
                                             *file_system_, trust_, options_.keys),
                                   options_.payload_check, options_.seed_wait,
                                   options_.ask_mount},
                       *file_system_, trust_, shared_counters_)) {}

Cache::~Cache() {
  if (background_ != nullptr && background_->in_child())
    std::ignore = background_.release();
  background_.reset();  // the last that uses paths
  let_go();
}

void Cache::open_parts() {
  // Nothing is created in a root that is refused: without it only the slots remain. And
  // nothing anywhere where one only looks.
  const Layout no_root{std::filesystem::path()};
  if (is_absent_)
    lock_folder_.why = mode_reason_;
  else
    lock_folder_ =
        find_lock_folder(mode_ == Mode::kOff ? no_root : layout_, *file_system_, trust_,
                         options_.runtime_dir, options_.persistent_dir);
  counters_.add(Counter::kUntrusted, lock_folder_.refused);
  slots_ = std::make_unique<Slots>(lock_folder_, *file_system_, counters_,
                                   options_.lock_times, options_.slots);
  if (mode_ == Mode::kOff)
    return;
  if (seeds_ != nullptr)
    seeds_->set_taken(OwnFolder(reach(layout_.packs())));
  const bool writes = mode_ == Mode::kReadWrite;
  store_ = std::make_unique<ObjectStore>(
      layout_, *file_system_, trust_, counters_,
      ObjectStoreOptions{writes ? Access::kReadWrite : Access::kReadOnly, options_.sync,
                         options_.payload_check,
                         [this](const Digest& key, std::int64_t used_ns) {
                           background_->used(key, used_ns);
                         }});
  // The counter file needs locks, and SQLite shared memory, too; a network file system
  // has neither.
  const std::int64_t type = file_system_->type(layout_.root().c_str());
  const bool is_ours = writes && type >= 0 && !is_network_type(type);
  if (is_ours && sqlite_is_usable() && !is_held())
    index_ = std::make_unique<Index>(layout_, *file_system_, *store_, lock_folder_,
                                     counters_);
  using Folder = CounterFile::Folder;
  counts_at_ = layout_.counters();
  if (!is_ours)
    counts_at_ = node_folder(layout_, counters_dir()).map([](const auto& own) {
      return own / "counters";
    });
  if (counts_at_)
    counter_file_ =
        std::make_unique<CounterFile>(*counts_at_, *file_system_, trust_,
                                      is_ours ? Folder::kOfRoot : Folder::kOfNode);
  background_ = std::make_unique<Background>(
      index_.get(), counter_file_.get(), counters_,
      [this](std::uint64_t bytes, const std::stop_token& stop) {
        trim_if_full(bytes, stop);
      });
}

void Cache::warn_once(const Error& error) {
  const std::size_t which = error.code == ErrorCode::kUntrusted ? 0 : 1;
  if (!warned_[which].exchange(true))
    log(LogLevel::kWarning, {"cache: ", error.message});
}

std::optional<StoredObject> Cache::look_again(const Digest& key,
                                              std::string_view target) {
  if (store_ == nullptr)
    return std::nullopt;
  auto found = store_->find(key, target);
  if (found)
    return *std::move(found);
  warn_once(found.error());
  return std::nullopt;
}

std::optional<StoredObject> Cache::find(const Digest& key, std::string_view target,
                                        Tier* tier) {
  auto found = look_again(key, target);
  Tier from = Tier::kDisk;
  Origin origin;
  if (!found && seeds_ != nullptr) {
    found = seeds_->find(key, target, &origin);
    from = Tier::kSeed;
  }
  counters_.add(found ? Counter::kHits : Counter::kMisses);
  if (!found) {
    // A remote may be asked next, whose lies are counted, and no publish follows.
    if (mode_ == Mode::kReadOnly)
      background_->counted();
    return std::nullopt;
  }
  if (tier != nullptr)
    *tier = from;
  if (from == Tier::kSeed) {
    counters_.add(Counter::kSeedHits);
    // A failure is counted, and the seed still has the object.
    if (mode_ == Mode::kReadWrite && !publish(*found).error)
      remember_signers(std::array{made(*found)}, origin);
  }
  return found;
}

PublishResult Cache::publish(const NewObject& object) {
  auto made = StoredObject::make(object);
  if (!made)
    return {Published::kNotStored, std::move(made).error(), 0};
  return publish(*made);
}

PublishResult Cache::publish(const StoredObject& object) {
  if (const auto may_write = writable(); !may_write) {
    if (mode_ == Mode::kReadOnly && !warned_read_only_.exchange(true))
      log(LogLevel::kWarning,
          {"the cache is read-only, and new kernels are kept in memory only: ",
           mode_reason_});
    return {Published::kNotStored, may_write.error(), 0};
  }
  if (!options_.stored_part)
    return store(object);
  auto part = options_.stored_part(object);
  if (!part)
    return {Published::kNotStored, std::move(part).error(), 0};
  return store(*part ? **part : object);
}

PublishResult Cache::store(const StoredObject& object) {
  PublishResult result = store_->publish(object);
  if (result.outcome == Published::kStored) {
    if (auto metadata = object.metadata())
      background_->published(entry_of(object, *std::move(metadata)));
  }
  return result;
}

Signers Cache::signers() const {
  if (store_ == nullptr)
    return Signers({});
  return Signers({reach(layout_.signers()), [counters = shared_counters_] {
                    counters->add(Counter::kUntrusted);
                  }});
}

void Cache::remember_signers(std::span<const Made> objects, const Origin& origin) {
  if (mode_ != Mode::kReadWrite)
    return;
  if (const auto done = signers().add(objects, origin);
      !done && !warned_signers_.exchange(true))
    log(LogLevel::kWarning,
        {"who signed an object will not be known: ", done.error().message});
}

void Cache::add_signers(std::span<Entry> entries) const {
  const auto known = entries.empty() ? Signers::Known() : signers().read();
  for (Entry& entry : entries) cache::add_signers(known, entry);
}

KeyLock::Acquired Cache::lock(KeyLock::LockRequest request,
                              std::optional<std::chrono::milliseconds> limit) {
  // No other process could use what we build.
  if (mode_ != Mode::kReadWrite)
    return {LockOutcome::kBypassed, {}, mode_reason_, {}};
  request.build_limit = limit.value_or(options_.build_limit);
  if (limit)
    request.longest_wait = *limit + options_.lock_times.compile_grace;
  return KeyLock::acquire({lock_folder_, *file_system_, counters_, options_.lock_times},
                          request);
}

Slots::Acquired Cache::acquire_slot(Slots::SlotRequest request) {
  request.build_limit = options_.build_limit;
  return slots_->acquire(request);
}

Result<void> Cache::writable() const {
  if (mode_ == Mode::kReadWrite)
    return {};
  return fail(ErrorCode::kUnavailable, "the cache is {}: {}",
              mode_ == Mode::kOff ? "off" : "read-only", mode_reason_);
}

void Cache::flush(std::chrono::milliseconds limit) {
  if (background_ != nullptr)
    background_->flush(limit);
}

Result<std::vector<Entry>> Cache::list(const ListQuery& query) {
  if (index_ != nullptr) {
    // The index does not know who signed.
    ListQuery of_index = query;
    of_index.signers.clear();
    of_index.distrusted_by.reset();
    if (asks_for_signers(query))
      of_index.limit.reset();
    auto listed = index_->list(of_index);
    if (listed && asks_for_signers(query)) {
      add_signers(*listed);
      return apply(query, *std::move(listed));
    }
    if (listed)
      return listed;
    // The index has counted the failure. A walk gives the same answer, only slower.
  }
  return walk(query, Damaged::kLeaveOut);
}

Result<std::vector<Entry>> Cache::walk(const ListQuery& query, Damaged damaged) const {
  std::vector<Entry> entries;
  for (unsigned folder = 0; store_ != nullptr && folder < kFolderCount; ++folder) {
    for (const ObjectFile& file : KILN_TRY(store_->list(folder))) {
      auto described = store_->describe(file.key);
      if (described && *described) {
        entries.push_back(**std::move(described));
      } else if (damaged == Damaged::kInclude) {
        entries.emplace_back().key = file.key;
        entries.back().size_bytes = static_cast<std::uint64_t>(file.info.st_size);
      }
    }
  }
  if (asks_for_signers(query))
    add_signers(entries);
  return apply(query, std::move(entries));
}

Result<Digest> Cache::resolve(std::string_view prefix) const {
  const std::string hex = lower_case(prefix);
  if (hex.size() < kShortestPrefix || hex.size() > 2 * Digest::kSize ||
      hex.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return refuse("'{}' is no key: write 6 to 64 hex digits", prefix);
  }
  std::vector<Digest> candidates;
  const auto folder = static_cast<unsigned>(std::stoul(hex.substr(0, 2), nullptr, 16));
  if (store_ != nullptr)
    candidates = KILN_TRY(store_->list_keys(folder));
  std::erase_if(candidates,
                [&](const Digest& key) { return !key.hex().starts_with(hex); });
  if (candidates.empty())
    return fail(ErrorCode::kNotFound, "there is no key {}", prefix);
  if (candidates.size() == 1)
    return candidates.front();
  std::ranges::sort(candidates);
  std::string list;
  for (std::size_t i = 0; i < std::min(candidates.size(), kMostCandidates); ++i)
    list += "\n  " + candidates[i].hex();
  return refuse("'{}' is the beginning of {} keys; write more digits:{}{}", prefix,
                candidates.size(), list,
                candidates.size() > kMostCandidates ? "\n  ..." : "");
}

Result<std::optional<StoredObject>> Cache::inspect(const Digest& key,
                                                   Tier* tier) const {
  std::optional<StoredObject> found;
  if (store_ != nullptr)
    found = KILN_TRY(store_->inspect(key));
  if (tier != nullptr)
    *tier = found ? Tier::kDisk : Tier::kSeed;
  if (!found && seeds_ != nullptr)
    found = seeds_->find(key, {});
  return found;
}

Result<std::optional<Entry>> Cache::describe(const Digest& key) const {
  if (store_ == nullptr)
    return std::nullopt;
  return store_->describe(key);
}

}  // namespace kiln::cache
