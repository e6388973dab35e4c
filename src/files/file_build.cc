#include "files/file_build.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "cache/object.h"
#include "compile/pool/worker_path.h"
#include "compile/protocol/program_end.h"
#include "files/private_folder.h"
#include "files/stored_files.h"
#include "process/child_process.h"
#include "util/public_border.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/unique_fd.h"
#include "util/units.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;
using files::PrivateFolder;
using std::chrono::milliseconds;

constexpr std::size_t kShownOutputBytes = 1U << 20U;

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

/// Of the worker, to end what it watches over.
constexpr std::chrono::seconds kGrace{2};
constexpr std::chrono::hours kLongestLimit{24 * 365};

struct ProgramRun {
  fs::path worker;                              // which watches over it
  const std::vector<std::string>& command;      // the first: a path, or found in PATH
  const std::vector<std::string>& environment;  // "NAME=value": all of it
  fs::path folder;                              // where it runs
  const fs::path& output;  // of a file, to which its stdout and stderr are added
};

/// Runs a program that takes time, such as a compiler, to its end, whatever its status:
/// in a process group that is killed at a limit, with this process, and at the
/// program's end, so that nothing goes on. Its stdin is empty. Errors:
/// kInvalidArgument, no command; kUnavailable, it could not be started; kTimeout,
/// kResourceLimit and kCancelled, it was killed.
Result<compile::ProgramEnd> run_to_its_end(const ProgramRun& run,
                                           const ExchangeLimits& limits) {
  if (run.command.empty() || run.command.front().empty())
    return refuse("a program to run has no name");
  const std::string& name = run.command.front();
  const auto limit = std::clamp<std::chrono::nanoseconds>(
      limits.deadline - std::chrono::steady_clock::now(), {}, kLongestLimit);
  ChildCommand command{.path = run.worker,
                       .environment = run.environment,
                       .name = "worker that runs a program",
                       .arguments = {std::string(compile::kRunArgument),
                                     std::to_string(limit / milliseconds(1)),
                                     run.folder.native(), run.output.native()}};
  command.arguments.insert(command.arguments.end(), run.command.begin(),
                           run.command.end());
  ChildProcess child = KILN_TRY(ChildProcess::start(command));
  ExchangeLimits waits = limits;
  waits.deadline = std::chrono::steady_clock::now() + limit + kGrace;
  auto frame = child.receive_frame(waits);
  // Whatever it was, the worker ends the program, with what has left its group, too.
  if (child.socket() >= 0)
    ::shutdown(child.socket(), SHUT_RDWR);
  for (const auto until = std::chrono::steady_clock::now() + kGrace;
       child.alive() && std::chrono::steady_clock::now() < until;)
    std::this_thread::sleep_for(milliseconds(1));
  child.kill();
  if (!frame) {
    Error error = std::move(frame).error();
    error.message = error.code == ErrorCode::kTimeout
                        ? fmt::format(
                              "{} took longer than its limit, and was killed with all "
                              "processes that it had started",
                              name)
                        : fmt::format("{}: {}", name, error.message);
    return tl::unexpected(std::move(error));
  }
  const compile::ProgramEnd end = KILN_TRY(compile::decode_program_end(*frame));
  if (end.error != 0)
    return fail(ErrorCode::kUnavailable, "cannot start {} in {}: {}", name,
                run.folder.native(), std::generic_category().message(end.error));
  return end;
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
      return fail(ErrorCode::kIo, "{} is gone", (folder / name).native());
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

}  // namespace

void files::Shared::tell(const FileRequest& request, const Digest& key,
                         std::chrono::steady_clock::time_point began,
                         const Result<Fetched>& fetched, const Fields& preimage) {
  service->tell({.key = &key,
                 .name = files::label_of(request),
                 .arch = request.target,
                 .began = began},
                fetched, [&] {
                  return Compared{preimage, {.template_name = request.name}};
                });
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
    const auto& worker = shared_->service->config().worker;
    const auto found = KILN_TRY(compile::find_worker({.path = worker.value_or("")}));
    const fs::path own = KILN_TRY(folder());
    const ProgramRun run{.worker = found,
                         .command = command,
                         .environment = environment,
                         .folder = own,
                         .output = output};
    return run_to_its_end(run, {.deadline = deadline_, .stop = stop});
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
                    "these files are built by the process from which this process was "
                    "forked: go on in that process");
}

Result<void> FileBuild::Impl::add_inputs(const std::vector<fs::path>& files,
                                         const std::vector<std::string>& tools) {
  const fs::path own = KILN_TRY(folder());
  for (const fs::path& file : files) {
    // As it is: "a/../b" is not "b" where "a" is a symbolic link.
    const fs::path path = own / file;
    if (path.native().find('\0') != std::string::npos)
      return refuse("an input's name has a NUL");
    if (!path.lexically_normal().native().starts_with(own.native() + "/"))
      inputs_.push_back(path.native());
  }
  tools_.insert(tools_.end(), tools.begin(), tools.end());
  return {};
}

FileBuild::Impl::WithInputs FileBuild::Impl::with_inputs() const {
  auto inputs = shared_->inputs.read(inputs_, tools_, begun_at_);
  std::map<std::string_view, std::string_view> known;
  for (const auto& [label, value] : preimage_.list()) known.emplace(label, value);
  WithInputs all{.preimage = preimage_, .list = {}, .unfit = std::move(inputs.unfit)};
  for (const auto& [label, identity] : inputs.all.list()) {
    const auto found = known.find(label);
    if (found == known.end())
      all.list.add(label, identity);
    else if (found->second != identity && !all.unfit)
      all.unfit = Error{ErrorCode::kUnavailable,
                        fmt::format("{} changed while it was built", label)};
  }
  for (const auto& [label, identity] : all.list.list())
    all.preimage.add(label, identity);
  return all;
}

/// With inputs that no look-up knows yet their list takes the place of the files.
Result<Fetched> FileBuild::Impl::store(const std::vector<NamedFile>& files) {
  const auto share = [](cache::StoredObject object) {
    return std::make_shared<const cache::StoredObject>(std::move(object));
  };
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begun_);
  WithInputs all = with_inputs();
  auto object =
      share(KILN_TRY(files::make_object(request_, all.preimage, files, took)));
  const auto stored = [&]() -> Result<Fetched> {
    if (all.unfit)
      return Fetched{.object = std::move(object),
                     .outcome = FetchOutcome::kCompiled,
                     .not_stored = std::move(all.unfit)};
    if (all.list.list().empty())
      return turn_.commit(std::move(object));
    auto put = shared_->service->builds().put(std::move(object));
    std::ignore =
        turn_.commit(share(KILN_TRY(files::make_list(request_, preimage_, all.list))));
    return put;
  };
  Fetched fetched = KILN_TRY(stored());
  fetched.built_in = took;
  is_told_ = true;
  shared_->tell(request_, fetched.object->key(), begun_, fetched, all.preimage);
  return fetched;
}

void FileBuild::Impl::fail(const Error& error) {
  if (!owner_.is_this())
    return;  // a forked child has the build as well, and the parent goes on
  if (!std::exchange(is_told_, true))
    shared_->tell(request_, preimage_.digest(), begun_, tl::unexpected(error), {});
  turn_.fail(error);
}

Result<CachedFiles> FileBuild::Impl::commit(const std::vector<NamedFile>& files) {
  KILN_TRY(check_process());
  KILN_TRY(files::check_no_list(files));
  return files::given_of(KILN_TRY(store(files)));
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
  auto names = KILN_TRY(files::files_below(folder));
  return CachedFiles{.key = with_inputs().preimage.digest().hex(),
                     .folder = folder,
                     .names = std::move(names),
                     .outcome = Event::Kind::kCompiled,
                     .not_stored = std::move(stored).error()};
}

Result<void> FileBuild::add_inputs(const std::vector<fs::path>& files,
                                   const std::vector<std::string>& tools) {
  return at_border([&] { return impl_->add_inputs(files, tools); });
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
}  // namespace kiln
