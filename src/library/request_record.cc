#include "library/request_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "build/request_keys.h"
#include "key/key.h"
#include "request/manifest.h"
#include "util/file_size_limit.h"
#include "util/log.h"
#include "util/posix_error.h"
#include "util/proc_file.h"
#include "util/this_library.h"
#include "util/try.h"

namespace kiln {
namespace {

/// The process that warms from the file may have another working directory: every
/// include directory becomes absolute, also those among the options, and every file to
/// link.
Result<Request> for_others(const Request& request, const device::Toolchain& used) {
  if (request.is_template())
    return request;
  std::vector<SourceOptions> sources = request.sources();
  for (auto& [source, file_name, headers, include_dirs, defines, options, names, target,
              as_nvrtc, working_dir, toolchain] : sources) {
    if (as_nvrtc) {
      working_dir = KILN_TRY(working_directory(working_dir));
      toolchain = device::to_named(used);
      continue;
    }
    key::SourceKeyInput moved = KILN_TRY(key::normalized({
        .source = {},
        .options = std::move(options),
        .macros = {},
        .include_dirs = std::move(include_dirs),
        .memory_headers = {},
        .name_expressions = {},
    }));
    include_dirs = std::move(moved.include_dirs);
    options = std::move(moved.options);
    for (const auto& [action, text] : moved.macros)
      options.push_back((action == key::MacroAction::kDefine ? "-D" : "-U") + text);
  }
  LinkOptions link = request.link();
  auto& [files, link_options] = link;
  for (auto& file : files) {
    std::error_code error;  // without a working directory there is no file either
    file = std::filesystem::absolute(file, error);
  }
  return Request::from_sources(std::move(sources), std::move(link));
}

/// "train.py", the module of `python -m`, or the name of the executable.
std::string program() {
  const auto arguments = read_proc_file("/proc/self/cmdline");
  std::string_view rest = arguments ? std::string_view(*arguments) : "";
  for (bool is_module = false; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find('\0'));
    if (is_module || word.ends_with(".py"))
      return std::filesystem::path(word).filename();
    is_module = word == "-m";
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
  }
  return this_program().filename();
}

}  // namespace

Result<std::unique_ptr<RequestRecord>> RequestRecord::open(
    const std::filesystem::path& path) {
  constexpr mode_t kMode = 0644;
  // O_NONBLOCK: a pipe without a reader must not block the host process.
  UniqueFd file(::open(path.c_str(),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, kMode));
  if (!file)
    return posix_error("open", path, errno);
  // A write to a pipe whose reader has ended would send SIGPIPE to the host.
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return posix_error("stat", path, errno);
  if (!S_ISREG(info.st_mode))
    return fail(ErrorCode::kIo,
                fmt::format("{} is no regular file: requests cannot be recorded in it",
                            path.native()));
  return std::unique_ptr<RequestRecord>(new RequestRecord(std::move(file), path));
}

RequestRecord::RequestRecord(KeptFd file, std::filesystem::path path)
    : file_(std::move(file)), path_(std::move(path)) {}

void RequestRecord::add(const Digest& key, const Request& request,
                        device::Target target, const device::Toolchain& toolchain) {
  const MutexLock lock(mutex_);
  if (!known_.insert(key).second)
    return;
  const auto written = write(request, target, toolchain);
  if (written || warned_)
    return;
  warned_ = true;
  log(LogLevel::kWarning, {request.name(), " is not recorded in ", path_.native(),
                           ", and others may be missing: ", written.error().message});
}

Result<void> RequestRecord::write(const Request& request, device::Target target,
                                  const device::Toolchain& toolchain) {
  const bool as_nvrtc = !request.is_template() && request.source().as_nvrtc;
  std::string line = KILN_TRY(request::manifest_line(
      KILN_TRY(for_others(request, toolchain)), target, as_nvrtc ? program() : ""));
  if (is_cut_off_)
    line.insert(0, 1, '\n');  // ends the truncated line
  if (!file_.is_ours())
    return fail(ErrorCode::kIo, "this program has closed the file");
  const ssize_t written = without_file_size_signal(
      [&] { return ::write(file_.get(), line.data(), line.size()); });
  const int err = errno;
  if (written != static_cast<ssize_t>(line.size()))
    is_cut_off_ = is_cut_off_ || written > 0;
  if (written != static_cast<ssize_t>(line.size()))
    return posix_error("write", path_, written < 0 ? err : ENOSPC);
  is_cut_off_ = false;
  return {};
}

}  // namespace kiln
