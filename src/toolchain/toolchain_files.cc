#include "toolchain/toolchain_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "util/read_file.h"
#include "util/try.h"
#include "util/write_file.h"

namespace kiln::device {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr std::uint64_t kLargestFile = 65536;
constexpr mode_t kFileMode = S_IRUSR | S_IWUSR;
constexpr std::string_view kRecorded = "recorded.json";
constexpr const char* kBefore = "before";  // as this file, recorded before it

/// What both kinds of file hold.
struct Description {
  ToolchainId id;
  NvrtcFacts facts;
  std::optional<LinkerId> linker{};
};

bool is_build_id(std::string_view text) {
  return text.size() <= 128 &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

json to_json(const Description& description) {
  const auto& [id, facts, linker] = description;
  const auto& [nvrtc, builtins] = id;
  const auto& [version, architectures] = facts;
  json names = json::array();
  for (const ComputeCapability each : architectures) names.push_back(to_string(each));
  json document{{"format", kFormat},
                {"nvrtc", nvrtc},
                {"builtins", builtins},
                {"version", to_string(version)},
                {"architectures", std::move(names)}};
  if (linker) {
    const auto& [nvjitlink, device_runtime] = *linker;
    document["nvjitlink"] = nvjitlink;
    document["cudadevrt"] = device_runtime;
  }
  return document;
}

json json_of(const Toolchain& toolchain) {
  return to_json({toolchain.id, toolchain.facts, toolchain.linker});
}

std::string to_text(const json& document) {
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
  constexpr std::size_t kMost = 64;  // no NVRTC has half as many
  if (architectures.size() > kMost)
    return std::nullopt;
  return architectures;
}

// nullopt for anything that to_json() cannot have made.
std::optional<Description> from_json(const json& document) {
  if (!document.is_object() || document.value("format", json()) != json(kFormat))
    return std::nullopt;
  const auto read_version = parse_cuda_version(text_member(document, "version"));
  auto read_list = read_architectures(document);
  Description description;
  auto& [id, facts, linker] = description;
  auto& [nvrtc, builtins] = id;
  auto& [version, architectures] = facts;
  nvrtc = text_member(document, "nvrtc");
  builtins = text_member(document, "builtins");
  if (!read_version || !read_list || nvrtc.empty() || !is_build_id(nvrtc) ||
      !is_build_id(builtins))
    return std::nullopt;
  version = *read_version;
  architectures = *std::move(read_list);
  LinkerId read_linker;
  auto& [nvjitlink, device_runtime] = read_linker;
  nvjitlink = text_member(document, "nvjitlink");
  device_runtime = text_member(document, "cudadevrt");
  if (!nvjitlink.empty() && is_build_id(nvjitlink) && is_build_id(device_runtime))
    linker = std::move(read_linker);
  return description;
}

json parse(std::string_view text) {
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string hint_name(std::string_view nvrtc_build_id) {
  return fmt::format("{}.json", nvrtc_build_id);
}

}  // namespace

std::optional<NvrtcFacts> read_hint(const OwnFolder& folder,
                                    std::string_view nvrtc_build_id) {
  const auto bytes = folder.read(hint_name(nvrtc_build_id), kLargestFile);
  if (!bytes)
    return std::nullopt;  // a worker asks the NVRTC again
  auto description = from_json(parse(as_text(*bytes)));
  if (!description || description->id.nvrtc != nvrtc_build_id)
    return std::nullopt;
  return std::move(description->facts);
}

Result<void> write_hint(const OwnFolder& folder, std::string_view nvrtc_build_id,
                        const NvrtcFacts& facts) {
  KILN_TRY(folder.check());
  const std::string text = to_text(to_json({{std::string(nvrtc_build_id), ""}, facts}));
  return replace_file(folder.path() / hint_name(nvrtc_build_id), as_bytes(text),
                      kFileMode);
}

Result<std::vector<Toolchain>> read_records(const OwnFolder& folder) {
  if (!KILN_TRY(folder.has(kRecorded)))
    return std::vector<Toolchain>();
  const std::filesystem::path path = folder.path() / kRecorded;
  const auto bytes = KILN_TRY(read_file(path, kLargestFile));
  if (!bytes)
    return std::vector<Toolchain>();
  auto records = parse_records(as_text(*bytes));
  if (records.empty()) {
    return fail(ErrorCode::kCorrupt,
                "{} does not name a toolchain; the next warm replaces it",
                path.native());
  }
  return records;
}

std::string record_of(const Toolchain& toolchain) {
  return to_text(json_of(toolchain));
}

std::vector<Toolchain> parse_records(std::string_view text) {
  std::vector<Toolchain> records;
  const auto add = [&records](const json& document) {
    auto description = from_json(document);
    if (!description || records.size() == kMostRecorded)
      return;
    Toolchain& recorded = records.emplace_back();
    recorded.id = std::move(description->id);
    recorded.facts = std::move(description->facts);
    recorded.linker = std::move(description->linker);
    recorded.found_in = "a record of the cache or of a seed";
  };
  const json document = parse(text);
  add(document);
  if (records.empty())
    return records;
  if (const auto before = document.find(kBefore); before != document.end())
    std::ranges::for_each(*before, add);
  return records;
}

Result<void> write_recorded(const OwnFolder& folder, const Toolchain& toolchain) {
  KILN_TRY(folder.check());
  const auto records_in = [](const std::optional<Bytes>& file) {
    return file ? parse_records(as_text(*file)) : std::vector<Toolchain>();
  };
  const auto was = folder.read(kRecorded, kLargestFile);
  json document = json_of(toolchain);
  json before = json::array();
  for (const Toolchain& each : records_in(was)) {
    if (each.id != toolchain.id && before.size() + 1 < kMostRecorded)
      before.push_back(json_of(each));
  }
  if (!before.empty())
    document[kBefore] = std::move(before);
  const std::string text = to_text(document);
  // A record that is there keeps its mode: others may have been let read it.
  if (was && as_text(*was) == text)
    return {};
  auto file = KILN_TRY(NewFile::with(folder.path() / kRecorded, as_bytes(text)));
  const auto displaced = KILN_TRY(file.exchange(kFileMode));
  // Another may have recorded since it was read.
  const auto lost = displaced.empty()
                        ? was
                        : folder.read(displaced.filename().native(), kLargestFile);
  if (lost == was)
    return {};
  auto known = parse_records(text);
  std::ranges::move(records_in(was), std::back_inserter(known));
  for (const Toolchain& each : records_in(lost)) {
    if (std::ranges::find(known, each.id, &Toolchain::id) == known.end())
      KILN_TRY(write_recorded(folder, each));
  }
  return {};
}

}  // namespace kiln::device
