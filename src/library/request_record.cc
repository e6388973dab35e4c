#include "library/request_record.h"

#include <string_view>
#include <utility>
#include <vector>

#include "build/request_keys.h"
#include "key/key.h"
#include "request/manifest.h"
#include "util/log.h"
#include "util/proc_file.h"
#include "util/text.h"
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
    const std::string_view word = next_part(rest, std::string_view("\0", 1));
    if (is_module || word.ends_with(".py"))
      return std::filesystem::path(word).filename();
    is_module = word == "-m";
  }
  return this_program().filename();
}

}  // namespace

Result<std::unique_ptr<RequestRecord>> RequestRecord::open(
    const std::filesystem::path& path) {
  auto file = KILN_TRY(LineFile::open(path));
  return std::unique_ptr<RequestRecord>(new RequestRecord(std::move(file)));
}

void RequestRecord::add(const Digest& key, const Request& request,
                        device::Target target, const device::Toolchain& toolchain) {
  const MutexLock lock(mutex_);
  if (!known_.insert(key).second)
    return;
  const auto written = write(request, target, toolchain);
  if (written || warned_)
    return;
  warned_ = true;
  log(LogLevel::kWarning,
      {request.name(), " is not recorded in ", file_->path().native(),
       ", and other requests may be missing: ", written.error().message});
}

Result<void> RequestRecord::write(const Request& request, device::Target target,
                                  const device::Toolchain& toolchain) {
  const bool as_nvrtc = !request.is_template() && request.source().as_nvrtc;
  std::string line = KILN_TRY(request::manifest_line(
      KILN_TRY(for_others(request, toolchain)), target, as_nvrtc ? program() : ""));
  return file_->add(std::move(line));
}

}  // namespace kiln
