#include "device/toolchain_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "util/posix_error.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln::device {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;
constexpr std::uint64_t kLargestFile = 65536;
constexpr std::string_view kRecorded = "recorded.json";

/// What both kinds of file hold.
struct Description {
  ToolchainId id;
  NvrtcFacts facts;
};

bool is_build_id(std::string_view text) {
  return text.size() <= 128 &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string to_text(const Description& description) {
  json architectures = json::array();
  for (const ComputeCapability each : description.facts.architectures)
    architectures.push_back(to_string(each));
  const json document{{"format", kFormat},
                      {"nvrtc", description.id.nvrtc},
                      {"builtins", description.id.builtins},
                      {"version", to_string(description.facts.version)},
                      {"architectures", std::move(architectures)}};
  return document.dump(2) + "\n";
}

// "" for a member that is no string.
std::string text_member(const json& document, const char* name) {
  const auto found = document.find(name);
  return found != document.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<std::vector<ComputeCapability>> read_architectures(const json& document) {
  const auto list = document.find("architectures");
  if (list == document.end() || !list->is_array() || list->empty())
    return std::nullopt;
  std::vector<ComputeCapability> architectures;
  for (const json& each : *list) {
    const auto architecture =
        parse_architecture(each.is_string() ? each.get<std::string>() : "");
    if (!architecture || architecture->suffix != ArchSuffix::kNone)
      return std::nullopt;
    architectures.push_back(architecture->capability);
  }
  std::sort(architectures.begin(), architectures.end());
  return architectures;
}

// nullopt for anything that to_text() cannot have written.
std::optional<Description> from_text(std::string_view text) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || document.value("format", json()) != json(kFormat))
    return std::nullopt;
  const auto version = parse_cuda_version(text_member(document, "version"));
  const auto architectures = read_architectures(document);
  ToolchainId id{text_member(document, "nvrtc"), text_member(document, "builtins")};
  if (!version || !architectures || id.nvrtc.empty() || !is_build_id(id.nvrtc) ||
      !is_build_id(id.builtins))
    return std::nullopt;
  return Description{std::move(id), {*version, *architectures}};
}

Result<void> write_all(int file, std::string_view text, const fs::path& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(file, text.data(), text.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return posix_error("write", path, errno);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

// Readers see the old file or the new one, whole.
Result<void> replace_file(const fs::path& path, std::string_view text) {
  const fs::path folder = path.parent_path();
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return posix_error("mkdir", folder, errno);
  std::string temporary = (folder / ".new-XXXXXX").native();
  UniqueFd file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!file)
    return posix_error("create", temporary, errno);
  Result<void> done = write_all(file.get(), text, temporary);
  if (done && ::close(file.release()) != 0)
    done = posix_error("close", temporary, errno);
  if (done && ::rename(temporary.c_str(), path.c_str()) != 0)
    done = posix_error("rename", path, errno);
  if (!done)
    ::unlink(temporary.c_str());  // the first error is the one to tell
  return done;
}

fs::path hint_path(const fs::path& folder, std::string_view nvrtc_build_id) {
  return folder / fmt::format("{}.json", nvrtc_build_id);
}

}  // namespace

std::optional<NvrtcFacts> read_hint(const fs::path& folder,
                                    std::string_view nvrtc_build_id) {
  if (folder.empty())
    return std::nullopt;
  const auto text = read_text_file(hint_path(folder, nvrtc_build_id), kLargestFile);
  if (!text)
    return std::nullopt;  // asked for again
  auto description = from_text(*text);
  if (!description || description->id.nvrtc != nvrtc_build_id)
    return std::nullopt;
  return std::move(description->facts);
}

Result<void> write_hint(const fs::path& folder, std::string_view nvrtc_build_id,
                        const NvrtcFacts& facts) {
  return replace_file(hint_path(folder, nvrtc_build_id),
                      to_text({{std::string(nvrtc_build_id), ""}, facts}));
}

Result<std::optional<Toolchain>> read_recorded(const fs::path& folder) {
  const fs::path path = folder / kRecorded;
  const auto bytes = KILN_TRY(read_file(path, kLargestFile));
  if (!bytes)
    return std::nullopt;
  auto description = from_text(as_text(*bytes));
  if (!description) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("{} does not name a toolchain; the next warm replaces it",
                            path.native()));
  }
  Toolchain recorded;
  recorded.id = std::move(description->id);
  recorded.facts = std::move(description->facts);
  recorded.found_in = "the last warm's record";
  return recorded;
}

Result<void> write_recorded(const fs::path& folder, const Toolchain& toolchain) {
  return replace_file(folder / kRecorded, to_text({toolchain.id, toolchain.facts}));
}

}  // namespace kiln::device
