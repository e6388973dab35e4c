#include "request/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "request/program_name.h"
#include "util/nearest.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::request {

namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 3> kTemplateKeys{"template", "params", "arch"};
constexpr std::array<std::string_view, 9> kSourceKeys{
    "source", "file",    "headers", "include_dirs", "defines",
    "std",    "options", "names",   "arch"};

constexpr std::string_view kStandard = "--std=";

constexpr int kMaxDepth = 8;  // a request needs 2

/// Parses one line. Errors name its file and line number.
class LineReader {
 public:
  LineReader(std::string_view text, std::string place)
      : text_(text), place_(std::move(place)) {}

  /// Relative include directories are below `folder`.
  ManifestLine run(std::size_t line, const std::filesystem::path& folder) {
    KILN_TRY(parse());
    if (!document_.is_object())
      return error("a line is one JSON object");
    const bool is_template = document_.contains("template");
    if (is_template && document_.contains("source"))
      return error("'template' and 'source' exclude each other");
    KILN_TRY(check_keys(is_template));
    ManifestEntry entry{
        is_template ? KILN_TRY(read_template()) : KILN_TRY(read_source(folder)),
        {},
        line};
    if (document_.contains("arch")) {
      const std::string text = KILN_TRY(text_of(document_["arch"], "arch"));
      auto architecture = device::parse_target(text);
      if (!architecture)
        return error(fmt::format("'arch': {}", architecture.error().message));
      entry.architecture = *architecture;
    }
    return entry;
  }

  Result<Parameters> parameters() {
    KILN_TRY(parse());
    return parameters_of(document_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> error(std::string_view what) const {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", place_, what));
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
      return error(fmt::format("not JSON at column {}: {}", thrown.byte,
                               what.substr(reason + 2)));
    } catch (const json::exception& thrown) {
      return error(fmt::format("not JSON: {}", thrown.what()));
    }
    if (too_deep)
      return error(fmt::format("nested over {} levels", kMaxDepth));
    if (!twice.empty())
      return error(fmt::format("the key '{}' is there twice", twice));
    return {};
  }

  [[nodiscard]] Result<void> check_keys(bool is_template) const {
    // A line with neither key may misspell either: then suggest from all keys.
    const bool either = is_template || document_.contains("source");
    std::vector<std::string> known;
    if (is_template || !either)
      known.insert(known.end(), kTemplateKeys.begin(), kTemplateKeys.end());
    if (!is_template)
      known.insert(known.end(), kSourceKeys.begin(), kSourceKeys.end());
    for (const auto& [key, value] : document_.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end())
        return error(fmt::format("unknown key '{}'{}", key, did_you_mean(key, known)));
    }
    if (!either)
      return error("neither 'template' nor 'source' is there");
    return {};
  }

  [[nodiscard]] Result<std::string> text_of(const json& value,
                                            std::string_view what) const {
    if (!value.is_string())
      return error(fmt::format("'{}' must be a string", what));
    return value.get<std::string>();
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

  [[nodiscard]] Result<std::vector<std::string>> strings_of(const char* key) const {
    std::vector<std::string> out;
    const json given = document_.value(key, json::array());
    if (!given.is_array())
      return error(fmt::format("'{}' must be a list of strings", key));
    for (const json& element : given) out.push_back(KILN_TRY(text_of(element, key)));
    return out;
  }

  Result<Request> read_source(const std::filesystem::path& folder) {
    SourceOptions out;
    // For messages it is a file in this line; the compiler sees no folder.
    out.file_name = place_ + "/" +
                    program_name(document_.contains("file")
                                     ? KILN_TRY(text_of(document_["file"], "file"))
                                     : std::string(kNoName));
    out.source = KILN_TRY(text_of(document_["source"], "source"));
    const json headers = document_.value("headers", json::object());
    if (!headers.is_object())
      return error("'headers' must be an object of name to text");
    for (const auto& [name, text] : headers.items())
      out.headers.emplace(name, KILN_TRY(text_of(text, "headers." + name)));
    for (const std::string& dir : KILN_TRY(strings_of("include_dirs")))
      out.include_dirs.push_back(dir.empty() ? "" : folder / dir);  // "" is refused
    out.defines = KILN_TRY(strings_of("defines"));
    out.options = KILN_TRY(strings_of("options"));
    if (document_.contains("std"))
      out.options.insert(
          out.options.begin(),
          std::string(kStandard).append(KILN_TRY(text_of(document_["std"], "std"))));
    out.name_expressions = KILN_TRY(strings_of("names"));
    return Request::from_source(std::move(out));
  }

  std::string_view text_;
  std::string place_;
  json document_;
};

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

json source_document(const SourceOptions& options) {
  // Names every member: one that is added does not compile until it is written, and
  // read above.
  const auto& [source, file_name, headers, include_dirs, defines, others, names,
               target] = options;
  std::ignore = target;  // "arch" says what was built
  json out{{"source", source}};
  if (const std::string name = program_name(file_name); name != kNoName)
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
    if (is_blank(line))
      return {};
    const std::string place = fmt::format("{}:{}", file_, number_);
    if (read.size() == kMaxManifestEntries)
      return fail(
          ErrorCode::kResourceLimit,
          fmt::format("{}: over the limit of {} requests", place, kMaxManifestEntries));
    if (line.size() > kMaxManifestLineBytes)
      read.push_back(fail(ErrorCode::kResourceLimit,
                          fmt::format("{}: over the limit of {} bytes a line", place,
                                      kMaxManifestLineBytes)));
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
    return fail(ErrorCode::kResourceLimit,
                fmt::format("{}: over the limit of {} bytes", file, kMaxManifestBytes));
  Lines lines(file, {});
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    KILN_TRY(lines.add(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
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
                                  std::optional<device::Target> architecture) {
  json out;
  const auto& [files, link_options] = request.link();
  if (request.sources().size() > 1 || !files.empty() || !link_options.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: a line holds one source, and this is linked of more",
                            request.name()));
  }
  if (request.is_template())
    out = json{{"template", request.name()}, {"params", request.parameters()}};
  else
    out = source_document(request.source());
  if (architecture)
    out["arch"] = device::arch_name(*architecture);
  try {
    return out.dump() + "\n";
  } catch (const json::exception& thrown) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: cannot be written as JSON: {}", request.name(),
                            thrown.what()));
  }
}

}  // namespace kiln::request
