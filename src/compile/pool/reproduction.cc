#include "compile/pool/reproduction.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <functional>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "codec/digest.h"
#include "compile/protocol/protocol.h"
#include "util/folder_names.h"
#include "util/log.h"
#include "util/posix_error.h"
#include "util/shell_word.h"
#include "util/try.h"
#include "util/write_file.h"

namespace kiln::compile {
namespace {

constexpr mode_t kFolderMode = 0700;
constexpr mode_t kFileMode = 0600;
constexpr std::size_t kTimeChars = 16;  // "20260131T120000Z"
constexpr std::size_t kHashChars = 16;

std::string folder_name(const Request& job) {
  return fmt::format("{:%Y%m%dT%H%M%SZ}-{}", fmt::gmtime(std::time(nullptr)),
                     Digest::of(encode_request(job)).hex().substr(0, kHashChars));
}

/// True only for names of folder_name(), perhaps with "-2". Nothing else is removed.
bool is_our_name(std::string_view name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_hex = [&](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); };
  if (name.size() < kTimeChars + 1 + kHashChars || name[8] != 'T' ||
      name[kTimeChars - 1] != 'Z' || name[kTimeChars] != '-')
    return false;
  const auto hash = name.substr(kTimeChars + 1, kHashChars);
  const auto rest = name.substr(kTimeChars + 1 + kHashChars);
  return std::all_of(name.begin(), name.begin() + 8, is_digit) &&
         std::all_of(hash.begin(), hash.end(), is_hex) &&
         (rest.empty() || (rest.starts_with('-') &&
                           std::all_of(rest.begin() + 1, rest.end(), is_digit)));
}

/// Creates a new folder: the same job saved twice within a second gets "-2".
Result<std::filesystem::path> make_new_folder(const std::filesystem::path& wanted) {
  constexpr int kAttempts = 100;
  for (int i = 1; i <= kAttempts; ++i) {
    auto path = wanted;
    if (i > 1)
      path += fmt::format("-{}", i);
    if (::mkdir(path.c_str(), kFolderMode) == 0)
      return path;
    if (errno != EEXIST)
      return posix_error("mkdir", path, errno);
  }
  return posix_error("mkdir", wanted, EEXIST);
}

/// The path of a header in memory below the headers folder; nullopt for a name that
/// would lead out of that folder.
std::optional<std::filesystem::path> header_place(const MemoryHeader& header) {
  const auto path = std::filesystem::path(header.name).lexically_normal();
  if (path.empty() || path.is_absolute() || *path.begin() == ".." ||
      !path.has_filename() || header.name.find('\0') != std::string::npos)
    return std::nullopt;
  return path;
}

Result<void> write_headers(const std::filesystem::path& folder, const CompileJob& job) {
  KILN_TRY(make_folder(folder));
  std::size_t number = 0;
  for (const auto& header : job.headers) {
    ++number;
    const auto place = header_place(header);
    if (!place) {
      // Saved anyway; its first line gives the name that an #include must use.
      const auto text = fmt::format("// {}\n{}", header.name, header.text);
      KILN_TRY(create_file(folder / fmt::format("header-{}", number), as_bytes(text),
                           kFileMode));
      continue;
    }
    auto parent = folder;
    for (const auto& part : place->parent_path()) {
      parent /= part;
      KILN_TRY(make_folder(parent));
    }
    KILN_TRY(create_file(folder / *place, as_bytes(header.text), kFileMode));
  }
  return {};
}

std::uint64_t bytes_in(const std::filesystem::path& folder) {
  std::uint64_t sum = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code gone;
    const auto size = entry->is_regular_file(gone) ? entry->file_size(gone) : 0;
    sum += gone ? 0 : size;
  }
  return sum;
}

/// Keeps `fresh`: its name may not be the latest of its second.
void remove_oldest(const std::filesystem::path& repro,
                   const std::filesystem::path& fresh, std::uint64_t bytes_kept) {
  std::vector<std::filesystem::path> ours;
  for (const std::string& name : folder_names(repro, is_our_name)) {
    if (repro / name != fresh)
      ours.push_back(repro / name);
  }
  // Their names begin with the time: the newest first.
  std::ranges::sort(ours, std::greater<>());
  std::uint64_t bytes = bytes_in(fresh);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const bool is_new = i + 1 < kReproductionsKept;
    bytes += is_new ? bytes_in(ours[i]) : 0;
    if (is_new && bytes <= bytes_kept)
      continue;
    std::error_code error;
    std::filesystem::remove_all(ours[i], error);
    if (error)
      log(LogLevel::kWarning,
          {"cannot remove ", ours[i].native(), ": ", error.message()});
  }
}

/// On the line of a shell's comment, which a line break would end.
std::string comment_text(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' ' || c == 0x7F; }, '?');
  return text;
}

/// True for an architecture option: the command line passes it as --arch.
bool is_architecture(std::string_view option) {
  return option.starts_with("--gpu-architecture") || option.starts_with("-arch");
}

/// In a folder of its own, so that no name is that of another file here. A job's name
/// has no folder; if it has, its last component is used.
std::filesystem::path source_place(const std::filesystem::path& folder,
                                   const CompileJob& job) {
  const auto name = std::filesystem::path(job.program_name).filename();
  const bool is_usable = !name.empty() && name != "." && name != "..";
  return folder / "source" / (is_usable ? name : kProgramName);
}

Result<void> write_files(const std::filesystem::path& folder, const CompileJob& job) {
  KILN_TRY(make_folder(folder / "source"));
  KILN_TRY(create_file(source_place(folder, job), as_bytes(job.source), kFileMode));
  if (!job.headers.empty())
    KILN_TRY(write_headers(folder / "headers", job));
  const auto command = fmt::format(
      "# {}, NVRTC {}\nKILN_NVRTC={} {}\n", comment_text(job.label),
      comment_text(job.nvrtc.nvrtc.native()), shell_word(job.nvrtc.nvrtc.native()),
      reproduction_command(folder, job));
  KILN_TRY(create_file(folder / "command", as_bytes(command), kFileMode));
  return {};
}

Result<void> write_files(const std::filesystem::path& folder, const PlanJob& job) {
  constexpr const char* kDevice = "device.json";
  // The device has its capability, and the flags are of the problem.
  const auto& [label, flags, problem, device, capability, cudnn, nvrtc, time_limit,
               memory_limit] = job;
  KILN_TRY(create_file(folder / kDevice, as_bytes(device), kFileMode));
  const auto command = fmt::format(
      "# {}\nKILN_CUDNN={} kiln attention warm --profile {} {}\n", comment_text(label),
      shell_word(cudnn.native()), shell_word((folder / kDevice).native()), flags);
  return create_file(folder / "command", as_bytes(command), kFileMode);
}

/// What NVIDIA's nvlink links as well; no verb of kiln takes objects alone.
Result<void> write_files(const std::filesystem::path& folder, const LinkJob& job) {
  // The options name the target; the device runtime is not saved.
  const auto& [label, linker, options, inputs, device_runtime, target, cuda_version,
               time_limit, memory_limit] = job;
  std::string command = fmt::format("# {}, {}\nnvlink", comment_text(label),
                                    comment_text(linker.native()));
  for (const std::string& option : options) command += " " + shell_word(option);
  std::size_t number = 0;
  for (const LinkInput& input : inputs) {
    const auto place = folder / fmt::format("input-{}", ++number);
    KILN_TRY(create_file(place, input.bytes, kFileMode));
    command += " " + shell_word(place.native());
  }
  return create_file(folder / "command", as_bytes(command + "\n"), kFileMode);
}

/// A question is no job: there is nothing to run again.
template <typename Question>
Result<void> write_files(const std::filesystem::path& /*folder*/,
                         const Question& /*question*/) {
  return {};
}

}  // namespace

std::string reproduction_command(const std::filesystem::path& folder,
                                 const CompileJob& job) {
  // write_files() has the label, the source and the NVRTC. The kernel is the same
  // without a precompiled header, and with more memory.
  const auto& [label, source, program_name, working_directory, options, as_nvrtc,
               name_expressions, headers, nvrtc, target, precompiled, make_precompiled,
               time_limit, memory_limit] = job;
  std::string command;
  if (as_nvrtc)
    command = fmt::format("cd {} && ", shell_word(working_directory.native()));
  command += fmt::format("kiln compile {} --arch {}{}",
                         shell_word(source_place(folder, job).native()),
                         device::arch_name(target), as_nvrtc ? " --as-nvrtc" : "");
  if (!headers.empty())
    command += fmt::format(" -I {}", shell_word((folder / "headers").native()));
  for (std::size_t i = 0; i < options.size(); ++i) {
    const auto& option = options[i];
    if (!is_architecture(option))
      command += fmt::format(" {}", shell_word("--option=" + option));
    else if (option.find('=') == std::string::npos)
      ++i;  // "-arch" "sm_90": its value is the next one
  }
  for (const auto& expression : name_expressions)
    command += fmt::format(" {}", shell_word("--name=" + expression));
  if (time_limit.count() > 0)
    command += fmt::format(" --timeout {}",
                           std::chrono::ceil<std::chrono::seconds>(time_limit).count());
  return command;
}

Result<std::filesystem::path> save_reproduction(const OwnFolder& repro,
                                                const Request& job,
                                                std::uint64_t bytes_kept) {
  KILN_TRY(make_folder(repro.path().parent_path()));
  KILN_TRY(repro.check());
  KILN_TRY(make_folder(repro.path()));
  const auto folder = KILN_TRY(make_new_folder(repro.path() / folder_name(job)));
  KILN_TRY(
      std::visit([&](const auto& each) { return write_files(folder, each); }, job));
  remove_oldest(repro.path(), folder, bytes_kept);
  return folder;
}

}  // namespace kiln::compile
