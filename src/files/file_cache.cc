#include "kiln/file_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "build/build_service.h"
#include "build/settings.h"
#include "cache/unix_time.h"
#include "codec/named_files.h"
#include "compile/pool/program_run.h"
#include "compile/pool/worker_path.h"
#include "files/private_folder.h"
#include "kiln/version.h"
#include "util/fork_count.h"
#include "util/log.h"
#include "util/mutex.h"
#include "util/public_border.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/unique_fd.h"
#include "util/units.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using files::Given;
using files::PrivateFolder;
using std::chrono::milliseconds;

constexpr const char* kSchema = "1";
constexpr std::string_view kAnyTarget = "any";
constexpr std::size_t kShownOutputBytes = 1U << 20U;

std::string label_of(const FileRequest& request) {
  return request.name.empty() ? "files" : request.name;
}

/// The fields whose digest is the key.
Result<Fields> preimage_of(const FileFields& fields) {
  if (fields.empty())
    return fail(ErrorCode::kInvalidArgument, "a key of files has no fields");
  Fields all;
  all.add("schema", kSchema);
  all.add("kind", to_string(cache::Kind::kFiles));
  for (const auto& [label, value] : fields) all.add("field:" + label, value);
  return all;
}

Result<cache::StoredObject> make_object(const FileRequest& request,
                                        const Fields& preimage,
                                        const std::vector<NamedFile>& files,
                                        milliseconds took) {
  const auto& [fields, name, target, tool, source_names] = request;
  const auto is_source = [&names = source_names](const NamedFile& file) {
    return std::ranges::find(names, file.name) != names.end();
  };
  std::vector<NamedFile> others;
  std::vector<NamedFile> sources;
  std::ranges::copy_if(files, std::back_inserter(sources), is_source);
  std::ranges::remove_copy_if(files, std::back_inserter(others), is_source);
  KILN_TRY(check_files(files));  // no name is of both
  const Bytes payload = KILN_TRY(encode_files(std::move(others)));
  if (payload.empty())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has no file that is no source", label_of(request)));
  const Bytes source = KILN_TRY(encode_files(std::move(sources)));
  return cache::StoredObject::make(
      {.kind = cache::Kind::kFiles,
       .target = target.empty() ? kAnyTarget : target,
       .metadata = {.template_name = name,
                    .params = {},
                    .arch = target,
                    .toolchain = tool,
                    .toolchain_build_ids = {},
                    .producer = version(),
                    .created_ns = cache::unix_now_ns(),
                    .compile_ms = static_cast<std::uint64_t>(took.count()),
                    .entry_points = {},
                    .variables = {},
                    .min_driver = {}},
       .preimage = preimage,
       .payload = payload,
       .log = {},
       .source = as_text(source),
       .ptx = {}});
}

/// Of a long one begin and end; "" if there is none.
std::string read_ends(const fs::path& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0)
    return {};
  const auto read = [&](std::size_t bytes, off_t at) {
    std::string text(bytes, '\0');
    const ssize_t got = ::pread(file.get(), text.data(), bytes, at);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return text;
  };
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size <= kShownOutputBytes)
    return read(size, 0);
  constexpr std::size_t kHalf = kShownOutputBytes / 2;
  return fmt::format("{}\n[{} left out]\n{}", read(kHalf, 0),
                     format_size(size - kShownOutputBytes),
                     read(kHalf, static_cast<off_t>(size - kHalf)));
}

/// The files below `folder`, and what their bytes are views of.
struct ReadFiles {
  std::vector<std::string> names;
  std::vector<Bytes> contents;
  std::vector<NamedFile> files;
};

/// kResourceLimit: too much to store.
Result<ReadFiles> read_all(const fs::path& folder) {
  ReadFiles read{
      .names = KILN_TRY(files::files_below(folder)), .contents = {}, .files = {}};
  std::uint64_t left = cache::kMaxObjectBytes;
  for (const std::string& name : read.names) {
    auto content = KILN_TRY(read_file(folder / name, left));
    if (!content)
      return fail(ErrorCode::kIo, fmt::format("{} is gone", (folder / name).native()));
    left -= content->size();
    read.contents.push_back(*std::move(content));
  }
  for (std::size_t i = 0; i < read.names.size(); ++i) {
    const fs::path path = folder / read.names[i];
    std::error_code error;  // of a file that was read
    const auto mode = fs::status(path, error).permissions();
    read.files.push_back({read.names[i], read.contents[i],
                          (mode & fs::perms::owner_exec) != fs::perms::none});
  }
  return read;
}

Result<CachedFiles> given_of(const Fetched& fetched) {
  Given given = KILN_TRY(files::give_files(*fetched.object));
  return CachedFiles{.key = fetched.object->key().hex(),
                     .folder = std::move(given.folder),
                     .names = std::move(given.names),
                     .outcome = event_of(fetched),
                     .not_stored = fetched.not_stored};
}

/// What would fail only once it is built.
Result<void> check(const FileRequest& request, milliseconds limit) {
  constexpr std::chrono::hours kLongest{24 * 365};
  if (request.target.size() > cache::kMaxTargetChars)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the target '{}' of {} has more than {} characters",
                            request.target, label_of(request), cache::kMaxTargetChars));
  if (limit <= milliseconds(0) || limit > kLongest)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the limit of {} must be above 0 and at most a year",
                            label_of(request)));
  return {};
}

}  // namespace

class FileCache::Impl {
 public:
  explicit Impl(std::unique_ptr<BuildService> opened) : service_(std::move(opened)) {}

  static Result<std::shared_ptr<Impl>> open(const Options& options);
  /// Without remotes.
  Result<std::optional<CachedFiles>> find_here(const Digest& key);
  Result<std::optional<CachedFiles>> find(const Digest& key,
                                          const std::stop_token& stop);
  Result<CachedFiles> put(const FileRequest& request,
                          const std::vector<NamedFile>& files);
  Result<void> remove(const FileFields& fields);
  static Result<std::variant<CachedFiles, FileBuild>> begin(
      const std::shared_ptr<Impl>& impl, const FileRequest& request, milliseconds limit,
      const std::stop_token& stop);

  [[nodiscard]] const Config& config() const { return service_->config(); }

 private:
  [[nodiscard]] Result<void> check_may_build(const FileRequest& request,
                                             const Digest& key) const;

  const std::unique_ptr<BuildService> service_;
};

class FileBuild::Impl {
 public:
  Impl(std::shared_ptr<FileCache::Impl> cache, FileRequest request, Fields preimage,
       BuildTicket turn, milliseconds limit)
      : cache_(std::move(cache)),
        request_(std::move(request)),
        preimage_(std::move(preimage)),
        turn_(std::move(turn)),
        deadline_(begun_ + limit) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (!is_given_ && owner_.is_this())  // a forked child has it, too
      files::remove_whole(folder_);
  }

  Result<fs::path> folder();
  Result<Ran> run(const std::vector<std::string>& command,
                  const std::vector<std::string>& environment,
                  const std::stop_token& stop);
  Result<CachedFiles> commit(const std::vector<NamedFile>& files);
  Result<CachedFiles> commit_folder();
  void describe(const FileRequest& request);
  void fail(const Error& error) {
    if (owner_.is_this())  // a forked child has it, too, and the parent goes on
      turn_.fail(error);
  }

 private:
  [[nodiscard]] Result<void> check_process() const;

  // Constant after construction.
  const OwnerProcess owner_;
  const std::shared_ptr<FileCache::Impl> cache_;  // whose service `turn_` uses
  FileRequest request_;
  const Fields preimage_;
  BuildTicket turn_;
  const Clock::time_point begun_ = Clock::now();
  const Clock::time_point deadline_;

  Mutex mutex_;
  fs::path folder_ KILN_GUARDED_BY(mutex_);  // empty: not made yet
  bool is_given_ = false;                    // it is a result, and stays
};

Result<std::shared_ptr<FileCache::Impl>> FileCache::Impl::open(const Options& options) {
  const Config config = KILN_TRY(settings(options, process_environment()));
  if (config.log_level)
    KILN_TRY(set_log_level(*config.log_level));
  return std::make_shared<Impl>(
      KILN_TRY(BuildService::open(config, {.may_be_elsewhere = true})));
}

Result<std::optional<CachedFiles>> FileCache::Impl::find_here(const Digest& key) {
  const auto found = service_->builds().find(key, {});
  if (!found)
    return std::nullopt;
  return KILN_TRY(given_of(*found));
}

/// In a forked child remotes are not asked.
Result<std::optional<CachedFiles>> FileCache::Impl::find(const Digest& key,
                                                         const std::stop_token& stop) {
  auto here = find_here(key);
  if (!here || *here || !service_->is_of_this_process())
    return here;
  const auto found = KILN_TRY(service_->builds().ask_remote(
      {.key = key,
       .target = {},
       .label = "files",
       .remotes = config().no_jit ? Remotes::kPatiently : Remotes::kBriefly},
      stop));
  if (!found)
    return std::nullopt;
  return KILN_TRY(given_of(*found));
}

Result<CachedFiles> FileCache::Impl::put(const FileRequest& request,
                                         const std::vector<NamedFile>& files) {
  const Fields preimage = KILN_TRY(preimage_of(request.fields));
  auto object = std::make_shared<const cache::StoredObject>(
      KILN_TRY(make_object(request, preimage, files, {})));
  if (auto found = KILN_TRY(find_here(object->key())))
    return *std::move(found);  // another's
  return given_of(service_->builds().put(std::move(object)));
}

Result<void> FileCache::Impl::remove(const FileFields& fields) {
  const Digest key = KILN_TRY(preimage_of(fields)).digest();
  if (!service_->is_of_this_process())
    return kiln::fail(ErrorCode::kUnavailable,
                      "nothing is removed in a forked child: remove it in "
                      "the process that opened Kiln");
  return service_->builds().remove(key);
}

Result<void> FileCache::Impl::check_may_build(const FileRequest& request,
                                              const Digest& key) const {
  constexpr std::size_t kDigits = 12;
  const std::string label =
      fmt::format("{} (key {})", label_of(request), key.hex().substr(0, kDigits));
  KILN_TRY(service_->check_may_build(
      label, request.target.empty() ? "any target" : request.target));
  if (service_->is_of_this_process())
    return {};
  return kiln::fail(
      ErrorCode::kUnavailable,
      fmt::format("{} is not built in a forked child: build in the process that "
                  "opened Kiln, or in one that is started anew",
                  label));
}

Result<std::variant<CachedFiles, FileBuild>> FileCache::Impl::begin(
    const std::shared_ptr<Impl>& impl, const FileRequest& request, milliseconds limit,
    const std::stop_token& stop) {
  KILN_TRY(check(request, limit));
  Fields preimage = KILN_TRY(preimage_of(request.fields));
  const Digest key = preimage.digest();
  // Who builds asks remotes below the key's lock.
  const bool builds = !impl->config().no_jit;
  if (auto found = KILN_TRY(builds ? impl->find_here(key) : impl->find(key, stop)))
    return *std::move(found);
  KILN_TRY(impl->check_may_build(request, key));
  auto begun = KILN_TRY(impl->service_->builds().begin({.key = key,
                                                        .target = {},
                                                        .label = label_of(request),
                                                        .remotes = Remotes::kBriefly,
                                                        .limit = limit},
                                                       stop));
  if (const auto* const fetched = std::get_if<Fetched>(&begun))
    return KILN_TRY(given_of(*fetched));
  return FileBuild(std::make_unique<FileBuild::Impl>(
      impl, request, std::move(preimage), std::get<BuildTicket>(std::move(begun)),
      limit));
}

Result<fs::path> FileBuild::Impl::folder() {
  KILN_TRY(check_process());
  const MutexLock lock(mutex_);
  if (folder_.empty())
    folder_ = KILN_TRY(PrivateFolder::on_disk().new_folder());
  return folder_;
}

Result<FileBuild::Ran> FileBuild::Impl::run(const std::vector<std::string>& command,
                                            const std::vector<std::string>& environment,
                                            const std::stop_token& stop) {
  KILN_TRY(check_process());
  const fs::path outputs = KILN_TRY(PrivateFolder::on_disk().new_folder());
  const fs::path output = outputs / "output";
  auto end = [&]() -> Result<compile::ProgramEnd> {
    const compile::ProgramRun run{.worker = KILN_TRY(compile::find_worker(
                                      {.path = cache_->config().worker.value_or("")})),
                                  .command = command,
                                  .environment = environment,
                                  .folder = KILN_TRY(folder()),
                                  .output = output};
    return compile::run_to_its_end(run, {.deadline = deadline_, .stop = stop});
  }();
  const std::string text = read_ends(output);
  files::remove_whole(outputs);
  if (end)
    return Ran{.status = end->status, .signal = end->signal, .output = text};
  if (!text.empty())
    end.error().message += fmt::format("; its output:\n{}", text);
  return tl::unexpected(std::move(end).error());
}

void FileBuild::Impl::describe(const FileRequest& request) {
  FileRequest described = request;
  described.fields = std::move(request_.fields);
  request_ = std::move(described);
}

Result<void> FileBuild::Impl::check_process() const {
  if (owner_.is_this())
    return {};
  return kiln::fail(ErrorCode::kUnavailable,
                    "these files are built by the process that this one was forked "
                    "from: go on with them there");
}

Result<CachedFiles> FileBuild::Impl::commit(const std::vector<NamedFile>& files) {
  KILN_TRY(check_process());
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begun_);
  auto object = KILN_TRY(make_object(request_, preimage_, files, took));
  return given_of(
      turn_.commit(std::make_shared<const cache::StoredObject>(std::move(object))));
}

Result<CachedFiles> FileBuild::Impl::commit_folder() {
  const fs::path folder = KILN_TRY(this->folder());
  auto stored = [&]() -> Result<CachedFiles> {
    const ReadFiles read = KILN_TRY(read_all(folder));
    return commit(read.files);
  }();
  if (stored || stored.error().code != ErrorCode::kResourceLimit)
    return stored;
  is_given_ = true;
  return CachedFiles{.key = preimage_.digest().hex(),
                     .folder = folder,
                     .names = KILN_TRY(files::files_below(folder)),
                     .outcome = Event::Kind::kCompiled,
                     .not_stored = std::move(stored).error()};
}

FileBuild::FileBuild(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FileBuild::FileBuild(FileBuild&& other) noexcept = default;
FileBuild& FileBuild::operator=(FileBuild&& other) noexcept = default;
FileBuild::~FileBuild() = default;

Result<fs::path> FileBuild::folder() {
  return at_border([&] { return impl_->folder(); });
}

Result<FileBuild::Ran> FileBuild::run(const std::vector<std::string>& command,
                                      const std::vector<std::string>& environment,
                                      const std::stop_token& stop) {
  return at_border([&] { return impl_->run(command, environment, stop); });
}

void FileBuild::describe(const FileRequest& request) {
  std::ignore = at_border([&]() -> Result<void> {
    impl_->describe(request);
    return {};
  });
}

Result<CachedFiles> FileBuild::commit(const std::vector<NamedFile>& files) {
  return at_border([&] { return impl_->commit(files); });
}

Result<CachedFiles> FileBuild::commit() {
  return at_border([&] { return impl_->commit_folder(); });
}

void FileBuild::fail(const Error& error) {
  std::ignore = at_border([&]() -> Result<void> {
    impl_->fail(error);
    return {};
  });
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
  return at_border([&]() -> Result<std::optional<CachedFiles>> {
    return impl_->find(KILN_TRY(preimage_of(fields)).digest(), stop);
  });
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
  return at_border([&] { return Impl::begin(impl_, request, limit, stop); });
}

Result<CachedFiles> FileCache::build_once(
    const FileRequest& request, milliseconds limit,
    const std::function<Result<void>(FileBuild&)>& build, const std::stop_token& stop) {
  return at_border([&]() -> Result<CachedFiles> {
    auto begun = KILN_TRY(Impl::begin(impl_, request, limit, stop));
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
