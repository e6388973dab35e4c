#include "files/file_results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cache/unix_time.h"
#include "compile/pool/program_run.h"
#include "compile/pool/worker_path.h"
#include "kiln/version.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/unique_fd.h"
#include "util/units.h"

namespace kiln::files {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kSchema = "1";
constexpr std::string_view kAnyTarget = "any";
constexpr std::size_t kShownOutputBytes = 1U << 20U;

std::string label_of(const Labels& labels) {
  return labels.name.empty() ? "files" : labels.name;
}

Result<cache::StoredObject> make_object(const FilesOrder& order, const Fields& preimage,
                                        const std::vector<NamedFile>& files,
                                        milliseconds took) {
  std::vector<NamedFile> others;
  std::vector<NamedFile> sources;
  for (const NamedFile& file : files) {
    const bool is_source =
        std::ranges::find(order.sources, file.name) != order.sources.end();
    (is_source ? sources : others).push_back(file);
  }
  KILN_TRY(check_files(files));  // no name is of both
  const Bytes payload = KILN_TRY(encode_files(std::move(others)));
  if (payload.empty())
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} has no file that is no source", label_of(order.labels)));
  const Bytes source = KILN_TRY(encode_files(std::move(sources)));
  const auto& [name, target, tool] = order.labels;
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
  ReadFiles read{.names = KILN_TRY(files_below(folder)), .contents = {}, .files = {}};
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

Result<FoundFiles> found_of(const Digest& key, Fetched fetched) {
  return FoundFiles{
      .key = key,
      .given = KILN_TRY(PrivateFolder::of_process().give(*fetched.object)),
      .outcome = fetched.outcome,
      .tier = fetched.tier,
      .not_stored = std::move(fetched.not_stored)};
}

}  // namespace

Result<BuildFolder::Ran> BuildFolder::run(
    const std::vector<std::string>& command,
    const std::vector<std::string>& environment) const {
  const fs::path outputs = KILN_TRY(PrivateFolder::of_process().new_folder());
  const fs::path output = outputs / "output";
  const compile::ProgramRun run{.worker = worker_,
                                .command = command,
                                .environment = environment,
                                .folder = path_,
                                .output = output};
  auto end = compile::run_to_its_end(run, {.deadline = deadline_, .stop = stop_});
  const std::string text = read_ends(output);
  remove_whole(outputs);
  if (end)
    return Ran{*end, text};
  if (!text.empty())
    end.error().message += fmt::format("; its output:\n{}", text);
  return tl::unexpected(std::move(end).error());
}

Result<Fields> FileResults::preimage(KeyFields fields) {
  if (fields.empty())
    return fail(ErrorCode::kInvalidArgument, "a key of files has no fields");
  std::ranges::sort(fields, {}, &Field::label);
  Fields all;
  all.add("schema", kSchema);
  all.add("kind", to_string(cache::Kind::kFiles));
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i > 0 && fields[i].label == fields[i - 1].label)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the field '{}' is given twice", fields[i].label));
    all.add("field:" + fields[i].label, fields[i].value);
  }
  return all;
}

Result<std::optional<FoundFiles>> FileResults::get(const KeyFields& fields,
                                                   const std::stop_token& stop) {
  return find(KILN_TRY(preimage(fields)).digest(), stop);
}

/// In a forked child remotes are not asked.
Result<std::optional<FoundFiles>> FileResults::find(const Digest& key,
                                                    const std::stop_token& stop) {
  auto found = find_here(key);
  if (!found || *found || !service_.is_of_this_process())
    return found;
  auto fetched = KILN_TRY(service_.builds().find_remote(
      {.key = key,
       .target = {},
       .label = "files",
       .remotes = service_.config().no_jit ? Remotes::kPatiently : Remotes::kBriefly},
      stop));
  if (!fetched)
    return std::nullopt;
  return KILN_TRY(found_of(key, *std::move(fetched)));
}

Result<std::optional<FoundFiles>> FileResults::find_here(const Digest& key) {
  auto fetched = service_.builds().find(key, {});
  if (!fetched)
    return std::nullopt;
  return KILN_TRY(found_of(key, *std::move(fetched)));
}

Result<FoundFiles> FileResults::put(const FilesOrder& order,
                                    const std::vector<NamedFile>& files) {
  const Fields preimage = KILN_TRY(FileResults::preimage(order.fields));
  const auto object = KILN_TRY(make_object(order, preimage, files, {}));
  auto published = service_.cache().publish(object);
  if (!published.error) {  // another's may have been there already
    if (auto found = KILN_TRY(find_here(object.key())))
      return *std::move(found);
  }
  return FoundFiles{.key = object.key(),
                    .given = KILN_TRY(PrivateFolder::of_process().give(object)),
                    .outcome = FetchOutcome::kCompiled,
                    .not_stored = std::move(published.error)};
}

Result<NewArtifact> FileResults::build_in(const BuildFolder& folder,
                                          const FilesOrder& order,
                                          const Fields& preimage,
                                          const BuildFiles& build,
                                          std::optional<Given>& too_large) const {
  const auto begun = Clock::now();
  KILN_TRY(build(folder));
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begun);
  auto object = [&]() -> Result<cache::StoredObject> {
    const ReadFiles read = KILN_TRY(read_all(folder.path()));
    return make_object(order, preimage, read.files, took);
  }();
  if (!object && object.error().code == ErrorCode::kResourceLimit)
    too_large = Given{folder.path(), KILN_TRY(files_below(folder.path()))};
  return NewArtifact{
      std::make_shared<const cache::StoredObject>(KILN_TRY(std::move(object))), {}};
}

/// What would fail only once it is built.
Result<void> FileResults::check(const FilesOrder& order, milliseconds limit) {
  constexpr std::chrono::hours kLongest{24 * 365};
  if (order.labels.target.size() > cache::kMaxTargetChars)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the target '{}' of {} has more than {} characters",
                            order.labels.target, label_of(order.labels),
                            cache::kMaxTargetChars));
  if (limit <= milliseconds(0) || limit > kLongest)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the limit of {} must be above 0 and at most a year",
                            label_of(order.labels)));
  return {};
}

Result<void> FileResults::check_may_build(const Labels& labels) const {
  const std::string label = label_of(labels);
  KILN_TRY(service_.check_may_build(
      label, labels.target.empty() ? "any target" : labels.target));
  if (service_.is_of_this_process())
    return {};
  return fail(
      ErrorCode::kUnavailable,
      fmt::format("{} is not built in a forked child: build in the process that "
                  "opened Kiln, or in one that is started anew",
                  label));
}

Result<std::variant<FoundFiles, FilesTicket>> FileResults::begin(
    const FilesOrder& order, milliseconds limit, const std::stop_token& stop) {
  KILN_TRY(check(order, limit));
  Fields preimage = KILN_TRY(FileResults::preimage(order.fields));
  const Digest key = preimage.digest();
  if (auto found = KILN_TRY(find(key, stop)))
    return *std::move(found);
  KILN_TRY(check_may_build(order.labels));
  auto begun = KILN_TRY(service_.builds().begin(
      {.key = key, .target = {}, .label = label_of(order.labels), .limit = limit},
      stop));
  if (auto* const fetched = std::get_if<Fetched>(&begun))
    return KILN_TRY(found_of(key, std::move(*fetched)));
  return FilesTicket(order, std::move(preimage),
                     std::get<BuildTicket>(std::move(begun)));
}

Result<FoundFiles> FilesTicket::commit(const std::vector<NamedFile>& files) {
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begun_);
  auto object = KILN_TRY(make_object(order_, preimage_, files, took));
  const Digest key = object.key();
  return found_of(
      key,
      build_.commit(std::make_shared<const cache::StoredObject>(std::move(object))));
}

Result<FoundFiles> FileResults::build_once(const FilesOrder& order, milliseconds limit,
                                           const BuildFiles& build,
                                           const std::stop_token& stop) {
  KILN_TRY(check(order, limit));
  const Fields preimage = KILN_TRY(FileResults::preimage(order.fields));
  const Digest key = preimage.digest();
  // Else the build asks the remotes.
  if (auto found = service_.config().no_jit ? KILN_TRY(find(key, stop))
                                            : KILN_TRY(find_here(key)))
    return *std::move(found);
  KILN_TRY(check_may_build(order.labels));
  const std::string label = label_of(order.labels);
  std::optional<Given> too_large;
  auto fetched = service_.builds().build(
      {.key = key,
       .target = {},
       .label = label,
       .build = [&](const std::stop_token& stopped,
                    const compile::ProgressCallback& on_phase) -> Result<NewArtifact> {
         BuildFolder folder;
         folder.path_ = KILN_TRY(PrivateFolder::of_process().new_folder());
         folder.worker_ = KILN_TRY(
             compile::find_worker({.path = service_.config().worker.value_or("")}));
         folder.deadline_ = Clock::now() + limit;
         folder.stop_ = stopped;
         on_phase(compile::BuildPhase::kCompiling);
         auto built = build_in(folder, order, preimage, build, too_large);
         if (!too_large)
           remove_whole(folder.path_);
         return built;
       },
       .whom =
           [](const Error& error) {
             return error.code == ErrorCode::kResourceLimit ? Answers::kItsCaller
                                                            : Answers::kEverybody;
           },
       .limit = limit},
      stop);
  if (fetched)
    return found_of(key, *std::move(fetched));
  if (!too_large)
    return tl::unexpected(std::move(fetched).error());
  return FoundFiles{.key = key,
                    .given = *std::move(too_large),
                    .outcome = FetchOutcome::kCompiled,
                    .not_stored = std::move(fetched).error()};
}

}  // namespace kiln::files
