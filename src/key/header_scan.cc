#include "key/header_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "key/header_reader.h"
#include "key/header_store.h"
#include "key/include_search.h"
#include "key/options.h"
#include "key/scan_memo.h"
#include "key/toolkit_folders.h"
#include "key/toolkit_operands.h"
#include "key/tree_memo.h"
#include "util/include_directives.h"
#include "util/try.h"

namespace kiln::key {
namespace {

namespace fs = std::filesystem;

// What a scan uses but does not own.
struct Environment {
  TreeMemos& trees;
  HeaderStore& store;
  const HeaderScanLimits& limits;
  const std::stop_token& stop;
};

// A text without a file still has a folder, taken from its name.
Includer memory_includer(const SourceKeyInput& input, const std::string& name) {
  const std::string folder = name.substr(0, name.rfind('/') + 1);
  return {folder.starts_with('/') ? folder : input.working_directory + folder, 0,
          false};
}

// Headers of the toolkit for host programs, which include standard headers for NVRTC,
// too. All others get along without.
constexpr std::array<std::string_view, 3> kOfHosts = {"cuda.h", "cudaTypedefs.h",
                                                      "cuda_occupancy.h"};

bool needs_standard_headers(std::string_view label) {
  const std::size_t slash = label.find('/');
  return label.substr(0, slash) == kStandardTree ||
         std::ranges::find(kOfHosts, label.substr(slash + 1)) != kOfHosts.end();
}

/// Guesses what #include MACRO and __has_include(MACRO) name. Only a preprocessor
/// knows; the compiler reports afterwards which file it found. Even if the key has that
/// file, another one that only this directive finds may hide it later. So every operand
/// in any text is looked up from each folder with such a directive. Thread safety:
/// none.
class ComputedGuesses {
 public:
  /// A text in that place has a computed directive.
  void add_place(const Includer& from) {
    places_.try_emplace("", Place{});  // looked up as <x>
    places_.try_emplace(*from.folder, Place{from});
  }
  /// An operand that occurs in a text, as the value of a -D, or, where there are
  /// conditions, as the value of another macro.
  void add_spelling(const std::string& operand) {
    if (known_.insert(operand).second)
      spellings_.push_back(operand);
  }

  /// Whether any text has a computed directive.
  [[nodiscard]] bool needed() const { return !places_.empty(); }

  struct Guess {
    std::string operand;
    Includer from;
  };
  /// A guess that was not returned before, or nullopt. Adding more can give more.
  [[nodiscard]] std::optional<Guess> next() {
    for (auto& [folder, place] : places_) {
      if (place.tried < spellings_.size())
        return Guess{spellings_[place.tried++], place.from};
    }
    return std::nullopt;
  }

 private:
  struct Place {
    Includer from;
    std::size_t tried = 0;  // how many of spellings_ were returned for it
  };

  std::map<std::string, Place> places_;  // by folder
  std::vector<std::string> spellings_;
  std::set<std::string> known_;
};

// The key records the whole include graph, because two includes that find the same file
// may find different headers from there on. Texts are numbered as they are discovered;
// the source is 0. Each has a line with what its directives found, in order. A digest
// stands for each text, and no line says where a file lies, so equal graphs over equal
// contents mean equal results in any folders.
class Scan {
 public:
  Scan(const SourceKeyInput& input, ToolkitFolders toolkit,
       const Environment& environment, std::chrono::system_clock::time_point now)
      : input_(input),
        toolkit_(std::move(toolkit)),
        tree_memos_(environment.trees),
        limits_(environment.limits),
        stop_(environment.stop),
        search_(input, toolkit_),
        now_(now),
        store_(environment.store),
        reader_(input.program_name, environment.store, environment.limits, now,
                environment.stop) {}

  /// `source`: the directives of the input's source.
  Result<HeaderScan> run(Directives source);

 private:
  struct Text {
    std::string name;
    Includer includer;
    SharedContent content;
  };
  // Two paths to one file in one folder are one text, unless it has an #include_next.
  using TextIdentity = std::tuple<FileIdentity, FileIdentity, std::size_t>;

  Result<void> add_source(Directives own);
  Result<void> add_macros(Directives& source);
  Result<std::size_t> add_memory_header(const MemoryHeader& header);
  Result<void> add_shadowed(const MemoryHeader& header);
  Result<std::size_t> add_file(const std::string& operand, const FoundHeader& found);
  std::size_t add_text(Text text);
  void add_computed(const Text& text, const Directive& directive);

  Result<void> follow_all();
  Result<void> follow(std::size_t text);
  Result<std::string> resolve(const Directive& directive, const Includer& from);
  Result<std::string> target(const std::string& operand, const FoundHeader& found);
  Result<void> read_trees(bool standard);
  Result<void> follow_shadows(std::span<const ToolkitTree> trees);
  void add_composed();
  Result<void> try_computed();
  Result<void> check_other_memory_headers();
  [[nodiscard]] Fields fields() const;
  [[nodiscard]] std::string memo_name() const;

  const SourceKeyInput& input_;
  const ToolkitFolders toolkit_;
  TreeMemos& tree_memos_;
  const HeaderScanLimits& limits_;
  const std::stop_token& stop_;
  IncludeSearch search_;
  const std::chrono::system_clock::time_point now_;
  HeaderStore& store_;
  HeaderReader reader_;

  std::deque<Text> texts_;
  std::size_t followed_ = 0;  // texts below this number have their line in graph_
  std::size_t edges_ = 0;
  std::size_t guessed_ = 0;
  std::map<TextIdentity, std::size_t> file_numbers_;
  std::map<FileIdentity, std::size_t> first_of_file_;
  std::map<const MemoryHeader*, std::size_t> memory_numbers_;
  bool reaches_toolkit_ = false;
  bool reaches_standard_ = false;
  ComputedGuesses guesses_;

  Fields header_fields_;
  std::set<std::string> absent_;
  std::string graph_;
  HeaderSnapshot headers_;
  HeaderScanStats stats_;
};

Result<HeaderScan> Scan::run(Directives source) {
  const std::string memo = memo_name();
  store_.load(memo);
  KILN_TRY(add_source(std::move(source)));
  KILN_TRY(follow_all());
  if (reaches_toolkit_ || guesses_.needed())
    KILN_TRY(read_trees(false));
  do {  // a guess may be the first that finds a standard header
    if (reaches_standard_) {
      headers_.standard_headers = toolkit_.trees().back().root;
      KILN_TRY(read_trees(true));
    }
    KILN_TRY(try_computed());
  } while (reaches_standard_ && headers_.standard_headers.empty());
  KILN_TRY(check_other_memory_headers());
  reader_.finish(memo, headers_, stats_);
  headers_.fields = fields();
  headers_.lookups = search_.take_lookups();
  return HeaderScan{std::make_shared<const HeaderSnapshot>(std::move(headers_)),
                    stats_};
}

// The source, preceded by what the options pre-include.
Result<void> Scan::add_source(Directives own) {
  auto content = std::make_shared<HeaderContent>();
  for (std::string& name : pre_includes(input_.options))
    content->directives.list.push_back({Lookup::kPreInclude, std::move(name), 0});
  KILN_TRY(reader_.add(input_.program_name, input_.source, own));
  std::move(own.list.begin(), own.list.end(),
            std::back_inserter(content->directives.list));
  content->directives.macro_values = std::move(own.macro_values);
  content->directives.path_macros = std::move(own.path_macros);
  KILN_TRY(add_macros(content->directives));
  add_text({input_.program_name, memory_includer(input_, input_.program_name),
            std::move(content)});
  return {};
}

// -D and name expressions are part of the source that the compiler sees.
Result<void> Scan::add_macros(Directives& source) {
  for (const Macro& macro : input_.macros) {
    const std::size_t equals = macro.text.find('=');
    if (macro.action != MacroAction::kDefine || equals == std::string::npos)
      continue;
    std::string definition = "#define " + macro.text;
    definition[definition.find('=')] = ' ';
    Directives own = KILN_TRY(reader_.directives_of("-D" + macro.text, definition));
    for (const Directive& header : own.macro_values)
      guesses_.add_spelling(header.operand);  // whether or not there is a condition
    std::ranges::move(own.macro_values, std::back_inserter(source.macro_values));
    std::ranges::move(own.path_macros, std::back_inserter(source.path_macros));
  }
  for (const std::string& name : input_.name_expressions)
    KILN_TRY(reader_.directives_of(name, name));
  return {};
}

Result<std::size_t> Scan::add_memory_header(const MemoryHeader& header) {
  const auto [known, is_new] = memory_numbers_.try_emplace(&header, texts_.size());
  if (is_new) {
    auto content = std::make_shared<HeaderContent>();
    content->directives = KILN_TRY(reader_.directives_of(header.name, header.text));
    add_text({header.name, memory_includer(input_, header.name), std::move(content)});
    KILN_TRY(add_shadowed(header));
  }
  return known->second;
}

// NVRTC looks at a file of a header's name, too.
Result<void> Scan::add_shadowed(const MemoryHeader& header) {
  const FoundHeader found = search_.shadowed_by(header);
  if (!found.file)
    return {};
  const ReadFile& file = *KILN_TRY(reader_.read(found));
  const Digest& digest = file.content->digest;
  header_fields_.add("shadowed/" + header.name, digest.hex());
  headers_.files.push_back(
      {header.name, found.path, file.stamp, file.settled, digest, file.varies});
  return {};
}

Result<std::size_t> Scan::add_file(const std::string& operand,
                                   const FoundHeader& found) {
  const ReadFile& file = *KILN_TRY(reader_.read(found));
  const FileIdentity identity{file.stamp.device, file.stamp.inode};
  const auto [known, is_new] = file_numbers_.try_emplace(
      TextIdentity{identity, search_.identity_of(*found.as_includer.folder),
                   file.has_include_next ? found.as_includer.next_dir : 0},
      texts_.size());
  if (!is_new)
    return known->second;
  if (texts_.size() > limits_.files)
    return fail(ErrorCode::kResourceLimit,
                "{} can include more than {} files, the last of them {}: remove "
                "#include directives or include directories",
                input_.program_name, limits_.files, found.path);

  const Digest& digest = file.content->digest;
  std::string value = digest.hex();
  // #pragma once goes by the file, not by its content.
  const auto [first, is_first] = first_of_file_.try_emplace(identity, texts_.size());
  if (!is_first)
    value += fmt::format(", the same file as {}", first->second);
  header_fields_.add("header/" + operand, value);
  headers_.files.push_back(
      {operand, found.path, file.stamp, file.settled, digest, file.varies});
  return add_text({operand, found.as_includer, file.content});
}

std::size_t Scan::add_text(Text text) {
  for (const Directive& directive : text.content->directives.list)
    add_computed(text, directive);
  texts_.push_back(std::move(text));
  return texts_.size() - 1;
}

void Scan::add_computed(const Text& text, const Directive& directive) {
  HeaderSnapshot& headers = headers_;
  if (directive.lookup == Lookup::kComputed)
    headers.computed.push_back(
        {text.name, directive.line, "#include " + directive.operand});
  else if (directive.lookup == Lookup::kComputedIf)
    headers.conditions.push_back(
        {text.name, directive.line, "__has_include(" + directive.operand});
  else
    return;
  guesses_.add_place(text.includer);
}

Result<void> Scan::follow_all() {
  while (followed_ < texts_.size()) KILN_TRY(follow(followed_++));
  return {};
}

Result<void> Scan::follow(std::size_t text) {
  const SharedContent content = texts_[text].content;  // a copy: texts_ grows meanwhile
  const Includer includer = texts_[text].includer;
  graph_ += fmt::format("{}:", text);
  for (const Directive& directive : content->directives.list)
    (graph_ += ' ') += KILN_TRY(resolve(directive, includer));
  graph_ += '\n';
  return {};
}

Result<std::string> Scan::resolve(const Directive& directive, const Includer& from) {
  if (++edges_ > limits_.edges)
    return fail(ErrorCode::kResourceLimit,
                "{} can reach more than {} #include directives: remove some, or "
                "headers that have them",
                input_.program_name, limits_.edges);
  if (stop_.stop_requested())
    return fail(ErrorCode::kCancelled, "stopped while the headers of {} were searched",
                input_.program_name);
  if (directive.lookup == Lookup::kComputed || directive.lookup == Lookup::kComputedIf)
    return "?";
  guesses_.add_spelling(directive.operand);
  const FoundHeader found = search_.find(directive.lookup, directive.operand, from);
  const std::string number = KILN_TRY(target(directive.operand, found));
  return found.namesake == nullptr ? number : found.namesake->name + " or " + number;
}

Result<std::string> Scan::target(const std::string& operand, const FoundHeader& found) {
  if (found.memory != nullptr)
    return fmt::format("{}", KILN_TRY(add_memory_header(*found.memory)));
  if (found.toolkit) {
    reaches_toolkit_ = true;
    reaches_standard_ = reaches_standard_ || (toolkit_.has_standard_headers() &&
                                              needs_standard_headers(*found.toolkit));
    return *found.toolkit;
  }
  if (found.file)
    return fmt::format("{}", KILN_TRY(add_file(operand, found)));
  if (absent_.insert(operand).second)
    header_fields_.add("header/" + operand, "not found");
  return "-";
}

// Those of the toolkit, or that of the standard headers.
Result<void> Scan::read_trees(bool standard) {
  std::vector<ToolkitTree>& trees = headers_.toolkit;
  const std::size_t known = trees.size();
  for (const ToolkitFolders::Tree& tree : toolkit_.trees()) {
    if ((tree.name == kStandardTree) != standard)
      continue;
    auto read = read_include_tree(tree.root, tree_memos_, now_, stop_);
    // A toolkit without headers counts as none: its headers are not found.
    if (!read && read.error().code == ErrorCode::kNotFound)
      continue;
    if (!read)
      return tl::unexpected(std::move(read).error());
    trees.push_back({tree.name, std::move(read->tree), tree.inner});
    stats_.toolkit_read += read->files_hashed;
    if (stats_.toolkit_memo == MemoWrite::kNotNeeded)
      stats_.toolkit_memo = read->memo;
  }
  return follow_shadows(std::span(trees).subspan(known));
}

// Files in the request's own folders that the headers of `trees` would find first.
Result<void> Scan::follow_shadows(std::span<const ToolkitTree> trees) {
  const bool has_own_folders =
      std::ranges::any_of(input_.include_dirs, [](const fs::path& dir) {
        std::error_code error;  // if it cannot be looked at, it holds nothing
        return fs::exists(dir, error);
      });
  if (!has_own_folders)
    return {};
  std::vector<std::string_view> operands;
  for (const ToolkitTree& tree : trees) append_operands(tree, operands);
  for (const IncludeSearch::Shadow& shadow : search_.find_shadows(operands)) {
    graph_ +=
        fmt::format("toolkit after {}: {} {}\n", shadow.toolkit_folders_before,
                    shadow.operand, KILN_TRY(target(shadow.operand, shadow.header)));
  }
  return follow_all();
}

// A macro that names a header by other macros: no #include spells such a path.
void Scan::add_composed() {
  constexpr std::size_t kMaxComposed = 64;
  PathMacroValues macros;
  for (const Text& text : texts_) {
    for (const PathMacro& macro : text.content->directives.path_macros)
      macros[macro.name].insert(macro.value);
  }
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    for (const Directive& value : texts_[i].content->directives.macro_values) {
      for (const std::string& path :
           with_path_macros(value.operand, macros, kMaxComposed)) {
        if (path != value.operand)
          guesses_.add_spelling(path);
      }
    }
  }
}

Result<void> Scan::try_computed() {
  std::size_t macros_of = 0;
  while (guesses_.needed()) {
    add_composed();
    for (; !headers_.conditions.empty() && macros_of < texts_.size(); ++macros_of) {
      for (const Directive& value : texts_[macros_of].content->directives.macro_values)
        guesses_.add_spelling(value.operand);
    }
    bool tried = false;
    while (const auto guess = guesses_.next()) {
      if (++guessed_ > limits_.guesses)
        return follow_all();
      graph_ += "? " +
                KILN_TRY(resolve({Lookup::kQuoted, guess->operand, 0}, guess->from)) +
                '\n';
      tried = true;
    }
    if (!tried)
      break;
    KILN_TRY(follow_all());
  }
  return {};
}

// Those that only the toolkit's headers or a computed include can reach: the compiler
// does not report which headers in memory it used.
Result<void> Scan::check_other_memory_headers() {
  if (!reaches_toolkit_ && !guesses_.needed())
    return {};
  for (const MemoryHeader& header : input_.memory_headers) {
    if (!memory_numbers_.contains(&header))
      KILN_TRY(reader_.directives_of(header.name, header.text));
  }
  return {};
}

Fields Scan::fields() const {
  Fields fields = header_fields_;
  std::vector<const MemoryHeader*> memory;
  for (const MemoryHeader& header : input_.memory_headers) memory.push_back(&header);
  std::stable_sort(
      memory.begin(), memory.end(),
      [](const MemoryHeader* a, const MemoryHeader* b) { return a->name < b->name; });
  for (const MemoryHeader* header : memory)
    fields.add("memory_header/" + header->name,
               Digest::of(as_bytes(header->text)).hex());
  if (texts_.size() > 1 || edges_ > 0)
    fields.add("include_graph", graph_);
  for (const ToolkitTree& tree : headers_.toolkit)
    fields.add(tree.name + "_headers", tree.headers->digest().hex());
  return fields;
}

// Sources that are compiled with the same folders tend to share headers.
std::string Scan::memo_name() const {
  std::string folders;
  for (const fs::path& dir : input_.include_dirs)
    folders.append(dir.native()).push_back('\0');
  return "headers-" + Digest::of(as_bytes(folders)).hex();
}

}  // namespace

struct HeaderScanner::State {
  State(const OwnFolder& memo_folder, HeaderScanLimits scan_limits)
      : trees(memo_folder), store(memo_folder), limits(scan_limits) {}

  TreeMemos trees;
  HeaderStore store;
  const HeaderScanLimits limits;
  ScanMemo last;
};

HeaderScanner::HeaderScanner(const OwnFolder& memo_folder, HeaderScanLimits limits)
    : state_(std::make_unique<State>(memo_folder, limits)) {}
HeaderScanner::~HeaderScanner() = default;

Result<HeaderScan> HeaderScanner::scan(const SourceKeyInput& input,
                                       std::span<const fs::path> toolkit_folders,
                                       const fs::path& standard_headers,
                                       std::chrono::system_clock::time_point now,
                                       const std::stop_token& stop) const {
  KILN_TRY(check_normalized(input));
  for (const fs::path& folder : toolkit_folders) {
    if (!folder.is_absolute())
      return refuse("the toolkit's include folder {} is not an absolute path",
                    folder.native());
  }
  Directives source =
      KILN_TRY(about(input.program_name, find_directives(input.source, stop)));
  const auto name = determining(input, source, toolkit_folders, standard_headers);
  if (auto known = name ? state_->last.find(*name) : nullptr)
    return HeaderScan{std::move(known), {}};
  const Environment environment{state_->trees, state_->store, state_->limits, stop};
  auto scan = KILN_TRY(
      Scan(input, ToolkitFolders(toolkit_folders, standard_headers), environment, now)
          .run(std::move(source)));
  // A toolkit that is not there yet counts as none.
  const bool wants_toolkit =
      !toolkit_folders.empty() &&
      !(scan.headers->computed.empty() && scan.headers->conditions.empty());
  if (name && !wants_toolkit)
    state_->last.keep(*name, scan.headers);
  return scan;
}

}  // namespace kiln::key
