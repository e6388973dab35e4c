#include "kiln/file_cache.h"

#include <fmt/format.h>

#include <utility>

#include "build/build_service.h"
#include "build/settings.h"
#include "files/file_build.h"
#include "files/inputs.h"
#include "files/private_folder.h"
#include "files/stored_files.h"
#include "util/log.h"
#include "util/public_border.h"
#include "util/try.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;
using files::PrivateFolder;
using std::chrono::milliseconds;

// A header that includes another one makes one more.
constexpr std::size_t kMostLists = 64;

/// What would fail only once it is built.
Result<void> check(const FileRequest& request, milliseconds limit) {
  constexpr std::chrono::hours kLongest{24 * 365};
  if (request.target.size() > cache::kMaxTargetChars)
    return refuse("the target '{}' of {} has more than {} characters", request.target,
                  files::label_of(request), cache::kMaxTargetChars);
  if (limit <= milliseconds(0) || limit > kLongest)
    return refuse("the limit of {} must be above 0 and at most a year",
                  files::label_of(request));
  return {};
}

/// Where a look-up ends: the key and, maybe, the files.
struct Place {
  Fields preimage;
  std::optional<Fetched> found{};
};

using Look = std::function<Result<std::optional<Fetched>>(const Digest& key)>;

}  // namespace

class FileCache::Impl {
 public:
  explicit Impl(std::unique_ptr<BuildService> opened)
      : shared_(std::make_shared<files::Shared>(std::move(opened))) {}

  static Result<std::shared_ptr<Impl>> open(const Options& options);
  Result<std::optional<CachedFiles>> get(const FileFields& fields,
                                         const std::stop_token& stop);
  Result<CachedFiles> put(const FileRequest& request,
                          const std::vector<NamedFile>& files);
  Result<void> remove(const FileFields& fields);
  Result<std::variant<CachedFiles, FileBuild>> begin(const FileRequest& request,
                                                     milliseconds limit,
                                                     const std::stop_token& stop);

  [[nodiscard]] const Config& config() const { return service().config(); }

 private:
  [[nodiscard]] BuildService& service() const { return *shared_->service; }
  /// Without remotes.
  [[nodiscard]] Look here() const;
  /// In a forked child remotes are not asked.
  [[nodiscard]] Look everywhere(const std::stop_token& stop) const;
  /// Follows lists of inputs to the files, or to the key that they would have.
  [[nodiscard]] Result<Place> follow(Fields preimage, const Look& look) const;
  [[nodiscard]] Result<void> check_may_build(const FileRequest& request,
                                             const Digest& key) const;

  const std::shared_ptr<files::Shared> shared_;
};

Result<std::shared_ptr<FileCache::Impl>> FileCache::Impl::open(const Options& options) {
  const Config config = KILN_TRY(settings(options, process_environment()));
  if (config.log_level)
    KILN_TRY(set_log_level(*config.log_level));
  return std::make_shared<Impl>(KILN_TRY(
      BuildService::open(config, {.journal = "files", .may_be_elsewhere = true})));
}

Look FileCache::Impl::here() const {
  return [this](const Digest& key) -> Result<std::optional<Fetched>> {
    return service().builds().find(key, {});
  };
}

Look FileCache::Impl::everywhere(const std::stop_token& stop) const {
  return [this, stop](const Digest& key) -> Result<std::optional<Fetched>> {
    auto found = service().builds().find(key, {});
    if (found || !service().is_of_this_process())
      return found;
    return service().builds().ask_remote(
        {.key = key,
         .target = {},
         .label = "files",
         .remotes = config().no_jit ? Remotes::kPatiently : Remotes::kBriefly},
        stop);
  };
}

Result<Place> FileCache::Impl::follow(Fields preimage, const Look& look) const {
  for (std::size_t lists = 0;; ++lists) {
    auto found = KILN_TRY(look(preimage.digest()));
    const auto list = found ? KILN_TRY(files::list_in(*found->object)) : std::nullopt;
    if (!list || lists == kMostLists)
      return Place{std::move(preimage), list ? std::nullopt : std::move(found)};
    shared_->inputs.extend(preimage, *list);
  }
}

Result<std::optional<CachedFiles>> FileCache::Impl::get(const FileFields& fields,
                                                        const std::stop_token& stop) {
  const auto began = std::chrono::steady_clock::now();
  const Place place =
      KILN_TRY(follow(KILN_TRY(files::preimage_of(fields)), everywhere(stop)));
  if (!place.found)
    return std::nullopt;
  const cache::StoredObject& object = *place.found->object;
  if (service().journal() != nullptr) {
    const auto metadata = object.metadata();
    shared_->tell({.fields = {},
                   .name = metadata ? metadata->template_name : "",
                   .target = metadata ? metadata->arch : ""},
                  object.key(), began, *place.found, place.preimage);
  }
  return KILN_TRY(files::given_of(*place.found));
}

Result<CachedFiles> FileCache::Impl::put(const FileRequest& request,
                                         const std::vector<NamedFile>& files) {
  KILN_TRY(files::check_no_list(files));
  const Place place =
      KILN_TRY(follow(KILN_TRY(files::preimage_of(request.fields)), here()));
  // Made even where another has stored files: a wrong name is the caller's error.
  auto object = std::make_shared<const cache::StoredObject>(
      KILN_TRY(files::make_object(request, place.preimage, files, {})));
  return files::given_of(place.found ? *place.found
                                     : service().builds().put(std::move(object)));
}

Result<void> FileCache::Impl::remove(const FileFields& fields) {
  const Fields preimage = KILN_TRY(files::preimage_of(fields));
  if (!service().is_of_this_process())
    return kiln::fail(ErrorCode::kUnavailable,
                      "nothing is removed in a forked child: remove the files in the "
                      "process that opened Kiln");
  return service().builds().remove(
      KILN_TRY(follow(preimage, here())).preimage.digest());
}

Result<void> FileCache::Impl::check_may_build(const FileRequest& request,
                                              const Digest& key) const {
  const std::string label =
      fmt::format("{} (key {})", files::label_of(request), key.short_hex());
  KILN_TRY(service().check_may_build(
      label, request.target.empty() ? "any target" : request.target));
  if (service().is_of_this_process())
    return {};
  return kiln::fail(
      ErrorCode::kUnavailable,
      "{} is not built in a forked child: build in the process that opened "
      "Kiln, or in a process that is started anew",
      label);
}

Result<std::variant<CachedFiles, FileBuild>> FileCache::Impl::begin(
    const FileRequest& request, milliseconds limit, const std::stop_token& stop) {
  KILN_TRY(check(request, limit));
  const auto began = std::chrono::steady_clock::now();
  const auto give = [&](const Fetched& fetched) {
    shared_->tell(request, fetched.object->key(), began, fetched, {});
    return files::given_of(fetched);
  };
  // Who builds asks remotes below the key's lock.
  const Look look = config().no_jit ? everywhere(stop) : here();
  Place place = KILN_TRY(follow(KILN_TRY(files::preimage_of(request.fields)), look));
  auto wait = CachedBuilds::Wait::kYes;  // once
  for (;;) {
    if (place.found)
      return KILN_TRY(give(*place.found));
    const Digest key = place.preimage.digest();
    KILN_TRY(check_may_build(request, key));
    auto begun = KILN_TRY(service().builds().begin({.key = key,
                                                    .target = {},
                                                    .label = files::label_of(request),
                                                    .remotes = Remotes::kBriefly,
                                                    .limit = limit},
                                                   stop, wait));
    if (auto* const turn = std::get_if<BuildTicket>(&begun))
      return FileBuild(std::make_unique<FileBuild::Impl>(
          shared_, request, std::move(place.preimage), std::move(*turn), limit));
    auto& fetched = std::get<Fetched>(begun);
    const auto list = KILN_TRY(files::list_in(*fetched.object));
    if (!list)
      return KILN_TRY(give(fetched));
    shared_->inputs.extend(place.preimage, *list);
    place = KILN_TRY(follow(std::move(place.preimage), here()));
    if (place.found)
      place.found->outcome = fetched.outcome;  // it was waited for
    if (fetched.outcome == FetchOutcome::kWaited)
      wait = CachedBuilds::Wait::kNo;
  }
}

Result<FileCache> FileCache::open(const Options& options) {
  return at_border(
      [&]() -> Result<FileCache> { return FileCache(KILN_TRY(Impl::open(options))); });
}

FileCache::FileCache(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
FileCache::FileCache(FileCache&& other) noexcept = default;
FileCache& FileCache::operator=(FileCache&& other) noexcept = default;
FileCache::~FileCache() = default;

Result<std::optional<CachedFiles>> FileCache::get(const FileFields& fields,
                                                  const std::stop_token& stop) {
  return at_border(
      [&]() -> Result<std::optional<CachedFiles>> { return impl_->get(fields, stop); });
}

Result<CachedFiles> FileCache::put(const FileRequest& request,
                                   const std::vector<NamedFile>& files) {
  return at_border([&] { return impl_->put(request, files); });
}

bool FileCache::builds() const {
  return !impl_->config().no_jit;
}

Result<void> FileCache::remove(const FileFields& fields) {
  return at_border([&] { return impl_->remove(fields); });
}

Result<fs::path> FileCache::new_folder() {
  return at_border([] { return PrivateFolder::on_disk().new_folder(); });
}

Result<std::variant<CachedFiles, FileBuild>> FileCache::begin(
    const FileRequest& request, milliseconds limit, const std::stop_token& stop) {
  return at_border([&] { return impl_->begin(request, limit, stop); });
}

Result<CachedFiles> FileCache::build_once(
    const FileRequest& request, milliseconds limit,
    const std::function<Result<void>(FileBuild&)>& build, const std::stop_token& stop) {
  return at_border([&]() -> Result<CachedFiles> {
    auto begun = KILN_TRY(impl_->begin(request, limit, stop));
    if (auto* const found = std::get_if<CachedFiles>(&begun))
      return std::move(*found);
    auto& turn = std::get<FileBuild>(begun);
    auto committed = build(turn).and_then([&] { return turn.commit(); });
    if (!committed)
      turn.fail(committed.error());
    return committed;
  });
}

}  // namespace kiln
