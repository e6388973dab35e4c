#include "request/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "request/program_name.h"
#include "util/nearest.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::request {

namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 3> kTemplateKeys{"template", "params", "arch"};
constexpr std::array<std::string_view, 8> kSourceKeys{
    "source", "file", "headers", "include_dirs", "defines", "options", "names", "arch"};

constexpr int kMaxDepth = 8;  // a request needs 2

/// Parses one line. Errors name its file and line number.
class LineReader {
 public:
  LineReader(std::string_view text, std::string place)
      : text_(text), place_(std::move(place)) {}

  Result<ManifestEntry> run() {
    KILN_TRY(parse());
    if (!document_.is_object())
      return error("a line is one JSON object");
    const bool is_template = document_.contains("template");
    if (is_template && document_.contains("source"))
      return error("'template' and 'source' exclude each other");
    KILN_TRY(check_keys(is_template));
    ManifestEntry entry{is_template ? KILN_TRY(read_template())
                                    : KILN_TRY(read_source())};
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

  Result<Parameters> parameters_of(const json& given) const {
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

  Result<Request> read_source() {
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
    for (std::string& folder : KILN_TRY(strings_of("include_dirs")))
      out.include_dirs.emplace_back(std::move(folder));
    out.defines = KILN_TRY(strings_of("defines"));
    out.options = KILN_TRY(strings_of("options"));
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

json source_document(const SourceOptions& source) {
  json out{{"source", source.source}};
  if (const std::string name = program_name(source.file_name); name != kNoName)
    out["file"] = name;
  if (!source.headers.empty())
    out["headers"] = source.headers;
  std::vector<std::string> options;
  for (const auto& dir : source.include_dirs) options.push_back("-I" + dir.string());
  for (const std::string& define : source.defines) options.push_back("-D" + define);
  options.insert(options.end(), source.options.begin(), source.options.end());
  if (!options.empty())
    out["options"] = options;
  if (!source.name_expressions.empty())
    out["names"] = source.name_expressions;
  return out;
}

}  // namespace

Result<std::vector<ManifestEntry>> parse_manifest(std::string_view text,
                                                  std::string_view file) {
  if (text.size() > kMaxManifestBytes)
    return fail(ErrorCode::kResourceLimit,
                fmt::format("{}: over the limit of {} bytes", file, kMaxManifestBytes));
  std::vector<ManifestEntry> out;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (is_blank(line))
      continue;
    if (line.size() > kMaxManifestLineBytes || out.size() == kMaxManifestEntries)
      return fail(
          ErrorCode::kResourceLimit,
          fmt::format("{}:{}: over the limit of {} bytes a line or {} requests", file,
                      number, kMaxManifestLineBytes, kMaxManifestEntries));
    out.push_back(KILN_TRY(LineReader(line, fmt::format("{}:{}", file, number)).run()));
    out.back().line = number;
  }
  return out;
}

Result<Parameters> parse_parameters(std::string_view json) {
  return LineReader(json, "parameters").parameters();
}

Result<std::vector<ManifestEntry>> read_manifest(const std::filesystem::path& path) {
  const std::string text = KILN_TRY(read_text_file(path, kMaxManifestBytes));
  return parse_manifest(text, path.string());
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
