#include "tools/source_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "device/cubin.h"
#include "tools/output/standard_streams.h"
#include "tools/stop_signal.h"
#include "util/bytes.h"
#include "util/demangle.h"
#include "util/nearest.h"
#include "util/posix_error.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

constexpr std::uint64_t kMaxSourceBytes = 64U << 20U;

Result<std::string> read_source(const Context& context, const std::string& file) {
  if (file != "-")
    return from_input(read_text_file(file, kMaxSourceBytes));
  std::string text;
  while (true) {
    const std::string piece = KILN_TRY(read_input(context.stop->token()));
    if (piece.empty())
      return text;
    text += piece;
    if (text.size() > kMaxSourceBytes) {
      return fail(ErrorCode::kResourceLimit, "standard input has over {} bytes",
                  kMaxSourceBytes);
    }
  }
}

Result<SourceOptions> source_of(const Context& context,
                                const SourceFileOptions& options,
                                const std::string& file) {
  SourceOptions made;  // no headers in memory; --arch is the target
  auto& [source, file_name, headers, include_dirs, defines, nvrtc_options, names,
         target, as_nvrtc, working_dir, toolchain] = made;
  source = KILN_TRY(read_source(context, file));
  file_name = file == "-" ? "standard input" : file;
  nvrtc_options = options.options;
  if (!options.standard.empty())
    nvrtc_options.push_back("--std=" + options.standard);
  if (options.as_nvrtc) {
    as_nvrtc = true;
    for (const std::string& folder : options.include_dirs)
      nvrtc_options.push_back("-I" + folder);
    for (const std::string& define : options.defines)
      nvrtc_options.push_back("-D" + define);
    return made;
  }
  // "a/.." stays as it is: if a is a link, it is another folder than this one.
  const auto add =
      [&folders = include_dirs](const std::filesystem::path& folder) -> Result<void> {
    std::error_code error;
    folders.push_back(std::filesystem::absolute(folder, error));
    if (error)
      return posix_error("getcwd", folder, error.value());
    return {};
  };
  // A folder that is not there is no error, as for NVRTC: the key says that its headers
  // were not found.
  for (const std::string& folder : options.include_dirs) KILN_TRY(add(folder));
  // NVRTC looks for "x.h" beside the including file, but gets the source itself as
  // text: so add the source's folder, after those that were asked for.
  if (file != "-") {
    const auto folder = std::filesystem::path(file).parent_path();
    KILN_TRY(add(folder.empty() ? "." : folder));
  }
  defines = options.defines;
  return made;
}

/// Of PTX alone, whose kernels NVRTC does not know.
Result<void> check_entry_points(const std::vector<std::filesystem::path>& files,
                                const std::vector<std::string>& wanted) {
  std::vector<std::string> known;
  for (const auto& file : files) {
    if (wanted.empty() || file.extension() != ".ptx")
      continue;
    const std::string text =
        KILN_TRY(from_input(read_text_file(file, kMaxSourceBytes)));
    const auto read = device::read_ptx(as_bytes(text));
    if (!read)
      return refuse("{}: {}", file.native(), read.error().message);
    for (const auto& entry : read->entry_points) known.push_back(entry.name);
  }
  for (const std::string& name : wanted) {
    const auto is_it = [&](const std::string& each) {
      return each == name || source_name(each) == name;
    };
    if (std::ranges::none_of(known, is_it))
      return refuse("{} has no kernel '{}'; it has {}{}", files.front().native(), name,
                    known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")),
                    did_you_mean(name, known));
  }
  return {};
}

}  // namespace

void add_source_options(OptionSet& cli, SourceFileOptions& options) {
  cli.option("-I", options.include_dirs, "DIR",
             "Search DIR for headers; may be repeated");
  cli.option("-D", options.defines, "NAME[=VALUE]", "Define a macro; may be repeated");
  cli.option("--option", options.options, "OPT",
             "Pass OPT on to NVRTC, e.g. --option --maxrregcount=64; may be repeated");
  cli.option("--std", options.standard, "STANDARD",
             "c++17, c++20, c++14, c++11; the language (default: c++17)");
  cli.option(
      "--name", options.names, "EXPR",
      "Instantiate and name EXPR of the first source, e.g. 'scale<float>'; of PTX "
      "alone, a kernel that it must have; may be repeated");
  cli.flag(
      "--as-nvrtc", options.as_nvrtc,
      "Compile as nvrtcCompileProgram does, and add nothing: no C++17, no folder of "
      "headers; FILE is the program's name");
  cli.option("--link", options.linked, "FILE",
             "Link FILE as well: a cubin, PTX, LTO-IR, object or archive; may be "
             "repeated");
  cli.option("--link-option", options.link_options, "OPT",
             "Pass OPT on to nvJitLink, e.g. --link-option=-Xptxas=-O1; may be "
             "repeated");
}

Result<Request> make_request(const Context& context, const SourceFileOptions& options) {
  if (std::ranges::count(options.files, "-") > 1)
    return refuse("standard input is only one source");
  std::vector<SourceOptions> sources;
  LinkOptions link;
  auto& [files, link_options] = link;
  files.assign(options.linked.begin(), options.linked.end());
  for (const std::string& file : options.files) {
    if (file.ends_with(".ptx"))
      files.emplace_back(file);
    else
      sources.push_back(KILN_TRY(source_of(context, options, file)));
  }
  if (sources.empty()) {  // PTX, which is linked to nothing else
    KILN_TRY(check_entry_points(files, options.names));
    sources.emplace_back();
    sources.back().file_name = options.files.front();
  } else {
    sources.front().name_expressions = options.names;
  }
  link_options = options.link_options;
  return Request::from_sources(std::move(sources), std::move(link));
}

}  // namespace kiln::tools
