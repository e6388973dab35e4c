#include "request/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "request/program_name.h"
#include "request/resolve.h"
#include "util/nearest.h"
#include "util/read_file.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln::request {

namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 3> kKinds{"template", "source", "sources"};
constexpr std::array<std::string_view, 2> kTemplateKeys{"params", "arch"};
constexpr std::array<std::string_view, 13> kSourceKeys{
    "source",    "file",         "headers", "include_dirs", "defines",
    "std",       "options",      "names",   "as_nvrtc",     "working_dir",
    "toolchain", "default_arch", "program"};
constexpr std::array<std::string_view, 3> kLinkKeys{"link_files", "link_options",
                                                    "arch"};

constexpr std::string_view kStandard = "--std=";

constexpr int kMaxDepth = 8;  // a request needs 4

/// Parses one line. Errors name its file and line number.
class LineReader {
 public:
  LineReader(std::string_view text, std::string place)
      : text_(text), place_(std::move(place)) {}

  /// Relative paths are below `folder`.
  ManifestLine run(std::size_t line, const std::filesystem::path& folder) {
    KILN_TRY(parse());
    if (!document_.is_object())
      return error("a line is one JSON object");
    const std::vector<std::string_view> kinds = KILN_TRY(kinds_of_line());
    KILN_TRY(check_keys(document_, kinds));
    ManifestEntry entry{kinds.front() == "template" ? KILN_TRY(read_template())
                                                    : KILN_TRY(read_sources(folder)),
                        {},
                        line};
    if (document_.contains("arch")) {
      const std::string text = KILN_TRY(text_of(document_["arch"], "arch"));
      auto architecture = device::parse_target(text);
      if (!architecture)
        return error("'arch': {}", architecture.error().message);
      entry.architecture = *architecture;
    }
    return entry;
  }

  Result<Parameters> parameters() {
    KILN_TRY(parse());
    return parameters_of(document_);
  }

 private:
  template <typename... Values>
  [[nodiscard]] tl::unexpected<Error> error(fmt::format_string<Values...> what,
                                            Values&&... values) const {
    return refuse("{}: {}", place_, fmt::format(what, std::forward<Values>(values)...));
  }

  /// The only place where JSON parsing may throw. Finds duplicate keys, which would
  /// silently count once, and deep nesting, which would overflow the stack later.
  Result<void> parse() {
    std::vector<std::set<std::string>> keys;  // one set per open object
    std::string twice;
    bool too_deep = false;
    const json::parser_callback_t watch = [&](int depth, json::parse_event_t event,
                                              json& parsed) {
      too_deep = too_deep || depth > kMaxDepth;
      if (too_deep)
        return false;  // dropped: nothing that follows matters
      if (event == json::parse_event_t::object_start)
        keys.emplace_back();
      else if (event == json::parse_event_t::object_end)
        keys.pop_back();
      else if (event == json::parse_event_t::key &&
               !keys.back().insert(parsed.get<std::string>()).second)
        twice = parsed.get<std::string>();
      return true;
    };
    try {
      document_ = json::parse(text_, watch);
    } catch (const json::parse_error& thrown) {
      // The text begins with an error number and a position. For a single line only the
      // column makes sense.
      const std::string_view what = thrown.what();
      const std::size_t reason = what.find(": ");
      return error("not JSON at column {}: {}", thrown.byte, what.substr(reason + 2));
    } catch (const json::exception& thrown) {
      return error("not JSON: {}", thrown.what());
    }
    if (too_deep)
      return error("nested over {} levels", kMaxDepth);
    if (!twice.empty())
      return error("the key '{}' is given twice", twice);
    return {};
  }

  /// "template", "source" or "sources", whichever is there; of a line that may misspell
  /// any of them, all.
  [[nodiscard]] Result<std::vector<std::string_view>> kinds_of_line() const {
    std::vector<std::string_view> there;
    for (const std::string_view kind : kKinds) {
      if (document_.contains(kind))
        there.push_back(kind);
    }
    if (there.size() > 1)
      return error("'{}' and '{}' exclude each other", there[0], there[1]);
    return there.empty() ? std::vector(kKinds.begin(), kKinds.end()) : there;
  }

  [[nodiscard]] static std::vector<std::string> keys_for(std::string_view kind) {
    std::vector<std::string> keys{std::string(kind)};
    const auto add = [&keys](const auto& more) {
      keys.insert(keys.end(), more.begin(), more.end());
    };
    if (kind == "template")
      add(kTemplateKeys);
    if (kind == "source")
      add(kSourceKeys);
    if (kind != "template")
      add(kLinkKeys);
    return keys;
  }

  [[nodiscard]] Result<void> check_keys(
      const json& given, const std::vector<std::string_view>& kinds) const {
    std::vector<std::string> known;
    for (const std::string_view kind : kinds) {
      const auto more = keys_for(kind);
      known.insert(known.end(), more.begin(), more.end());
    }
    KILN_TRY(check_known(given, known, ""));
    if (kinds.size() > 1)
      return error("it has neither 'template' nor 'source' nor 'sources'");
    return {};
  }

  [[nodiscard]] Result<void> check_known(const json& given,
                                         const std::vector<std::string>& known,
                                         std::string_view where) const {
    for (const auto& [key, value] : given.items()) {
      if (std::ranges::find(known, key) == known.end())
        return error("{}unknown key '{}'{}", where, key, did_you_mean(key, known));
    }
    return {};
  }

  [[nodiscard]] Result<std::string> text_of(const json& value,
                                            std::string_view what) const {
    if (!value.is_string())
      return error("'{}' must be a string", what);
    return value.get<std::string>();
  }

  /// False if there is none.
  [[nodiscard]] Result<bool> flag_of(const json& object, const std::string& where,
                                     const std::string& key) const {
    const json given = object.value(key, json(false));
    if (!given.is_boolean())
      return error("'{}{}' must be true or false", where, key);
    return given.get<bool>();
  }

  Result<Request> read_template() {
    std::string name = KILN_TRY(text_of(document_["template"], "template"));
    if (name.empty())
      return error("'template' is empty");
    return Request(std::move(name),
                   KILN_TRY(parameters_of(document_.value("params", json::object()))));
  }

  [[nodiscard]] Result<Parameters> parameters_of(const json& given) const {
    Parameters params;
    if (!given.is_object())
      return error("'params' must be an object");
    for (const auto& [parameter, value] : given.items()) {
      // People write numbers and booleans by hand.
      if (value.is_number_integer() || value.is_boolean())
        params.emplace(parameter, value.dump());
      else
        params.emplace(parameter, KILN_TRY(text_of(value, "params." + parameter)));
    }
    return params;
  }

  [[nodiscard]] Result<std::vector<std::string>> strings_of(
      const json& object, const std::string& where, const std::string& key) const {
    std::vector<std::string> out;
    const json given = object.value(key, json::array());
    if (!given.is_array())
      return error("'{}{}' must be a list of strings", where, key);
    for (const json& element : given)
      out.push_back(KILN_TRY(text_of(element, where + key)));
    return out;
  }

  [[nodiscard]] Result<std::vector<std::filesystem::path>> paths_of(
      const json& object, const std::string& where, const std::string& key,
      const std::filesystem::path& folder) const {
    std::vector<std::filesystem::path> out;
    for (const std::string& path : KILN_TRY(strings_of(object, where, key)))
      out.push_back(path.empty() ? "" : folder / path);  // "" is refused
    return out;
  }

  [[nodiscard]] Result<Request> read_sources(
      const std::filesystem::path& folder) const {
    std::vector<SourceOptions> sources;
    if (!document_.contains("sources")) {
      sources.push_back(KILN_TRY(read_source(document_, "", folder)));
    } else {
      const json& given = document_["sources"];
      if (!given.is_array() || given.empty())
        return error("'sources' must be a list of objects");
      const std::vector<std::string> known(kSourceKeys.begin(), kSourceKeys.end());
      for (std::size_t i = 0; i < given.size(); ++i) {
        const std::string where = fmt::format("sources[{}].", i);
        if (!given[i].is_object() || !given[i].contains("source"))
          return error("'sources[{}]' must be an object with a 'source'", i);
        KILN_TRY(check_known(given[i], known, fmt::format("sources[{}]: ", i)));
        sources.push_back(KILN_TRY(read_source(given[i], where, folder)));
      }
    }
    LinkOptions link;
    auto& [files, options] = link;
    files = KILN_TRY(paths_of(document_, "", "link_files", folder));
    options = KILN_TRY(strings_of(document_, "", "link_options"));
    return Request::from_sources(std::move(sources), std::move(link));
  }

  [[nodiscard]] Result<SourceOptions> read_source(
      const json& given, const std::string& where,
      const std::filesystem::path& folder) const {
    SourceOptions out;
    auto& [source, file_name, headers, include_dirs, defines, options, names, target,
           as_nvrtc, working_dir, toolchain] = out;  // run() reads "arch"
    as_nvrtc = KILN_TRY(flag_of(given, where, "as_nvrtc"));
    toolchain =
        KILN_TRY(text_of(given.value("toolchain", json("")), where + "toolchain"));
    // For people: who made the request.
    KILN_TRY(text_of(given.value("program", json("")), where + "program"));
    if (KILN_TRY(flag_of(given, where, "default_arch")))
      target = kDefaultTarget;
    if (as_nvrtc)
      working_dir = folder / KILN_TRY(text_of(given.value("working_dir", json("")),
                                              where + "working_dir"));
    file_name = given.contains("file")
                    ? KILN_TRY(text_of(given["file"], where + "file"))
                    : std::string(kNoName);
    // For messages it is a file in this line; the compiler sees no folder.
    if (!as_nvrtc)
      file_name = place_ + "/" + program_name(file_name);
    source = KILN_TRY(text_of(given["source"], where + "source"));
    const json texts = given.value("headers", json::object());
    if (!texts.is_object())
      return error("'{}headers' must be an object of name to text", where);
    for (const auto& [name, text] : texts.items())
      headers.emplace(
          name, KILN_TRY(text_of(text, fmt::format("{}headers.{}", where, name))));
    include_dirs = KILN_TRY(paths_of(given, where, "include_dirs", folder));
    defines = KILN_TRY(strings_of(given, where, "defines"));
    options = KILN_TRY(strings_of(given, where, "options"));
    if (given.contains("std"))
      options.insert(options.begin(), std::string(kStandard).append(KILN_TRY(
                                          text_of(given["std"], where + "std"))));
    names = KILN_TRY(strings_of(given, where, "names"));
    return out;
  }

  std::string_view text_;
  std::string place_;
  json document_;
};

json source_document(const SourceOptions& options) {
  // Names every member: one that is added does not compile until it is written, and
  // read above.
  const auto& [source, file_name, headers, include_dirs, defines, others, names, target,
               as_nvrtc, working_dir, toolchain] = options;
  json out{{"source", source}};
  if (as_nvrtc)
    out["as_nvrtc"] = true;
  if (target == kDefaultTarget)  // else "arch" says it
    out["default_arch"] = true;
  if (!toolchain.empty())
    out["toolchain"] = toolchain;
  if (!working_dir.empty())
    out["working_dir"] = working_dir.native();
  if (const std::string name = as_nvrtc ? file_name : program_name(file_name);
      name != kNoName)
    out["file"] = name;
  const auto add = [&](const char* key, const auto& values) {
    if (!values.empty())
      out[key] = values;
  };
  add("headers", headers);
  for (const auto& dir : include_dirs) out["include_dirs"].push_back(dir.native());
  add("defines", defines);
  const bool has_standard = !others.empty() && others.front().starts_with(kStandard);
  if (has_standard)
    out["std"] = others.front().substr(kStandard.size());
  add("options", std::vector(others.begin() + (has_standard ? 1 : 0), others.end()));
  add("names", names);
  return out;
}

/// The lines of one manifest, as they come.
class Lines {
 public:
  Lines(std::string_view file, std::filesystem::path folder)
      : file_(file), folder_(std::move(folder)) {}

  Result<void> add(std::string_view line) {
    ++number_;
    if (trimmed(line).empty())
      return {};
    const std::string place = fmt::format("{}:{}", file_, number_);
    if (read.size() == kMaxManifestEntries)
      return fail(ErrorCode::kResourceLimit, "{}: over the limit of {} requests", place,
                  kMaxManifestEntries);
    if (line.size() > kMaxManifestLineBytes)
      read.push_back(fail(ErrorCode::kResourceLimit,
                          "{}: over the limit of {} bytes a line", place,
                          kMaxManifestLineBytes));
    else
      read.push_back(LineReader(line, place).run(number_, folder_));
    return {};
  }

  std::vector<ManifestLine> read;

 private:
  const std::string_view file_;
  const std::filesystem::path folder_;
  std::size_t number_ = 0;
};

}  // namespace

Result<std::vector<ManifestLine>> parse_manifest(std::string_view text,
                                                 std::string_view file) {
  if (text.size() > kMaxManifestBytes)
    return fail(ErrorCode::kResourceLimit, "{}: over the limit of {} bytes", file,
                kMaxManifestBytes);
  Lines lines(file, {});
  while (!text.empty()) {
    KILN_TRY(lines.add(next_part(text, "\n")));
  }
  return std::move(lines.read);
}

Result<Parameters> parse_parameters(std::string_view json) {
  return LineReader(json, "parameters").parameters();
}

Result<std::vector<ManifestLine>> read_manifest(const std::filesystem::path& path) {
  const std::string file = path.string();
  Lines lines(file, path.parent_path());
  KILN_TRY(read_lines(path, kMaxManifestBytes,
                      [&](std::string_view line) { return lines.add(line); }));
  return std::move(lines.read);
}

Result<std::string> manifest_line(const Request& request,
                                  std::optional<device::Target> architecture,
                                  std::string_view program) {
  json out;
  if (request.is_template()) {
    out = json{{"template", request.name()}, {"params", request.parameters()}};
  } else if (request.sources().size() == 1) {
    out = source_document(request.source());
  } else {
    for (const SourceOptions& source : request.sources())
      out["sources"].push_back(source_document(source));
  }
  const auto& [files, link_options] = request.link();
  for (const auto& file : files) out["link_files"].push_back(file.native());
  if (!link_options.empty())
    out["link_options"] = link_options;
  if (!program.empty())
    out["program"] =
        json::parse(  // only shown, and so with U+FFFD for what is not UTF-8
            json(program).dump(-1, ' ', false, json::error_handler_t::replace));
  if (architecture)
    out["arch"] = device::arch_name(*architecture);
  try {
    return out.dump() + "\n";
  } catch (const json::exception& thrown) {
    return refuse("{}: cannot be written as JSON: {}", request.name(), thrown.what());
  }
}

}  // namespace kiln::request
