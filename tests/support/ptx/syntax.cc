#include "tests/support/ptx/syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <utility>

#include "tests/support/ptx/tokens.h"

namespace kiln::ptx::syntax {
namespace {

/// Left where the parser meets what it does not know; ends parse().
struct Unknown {
  std::string why;
};

[[noreturn]] void refuse(std::string why) {
  throw Unknown{std::move(why)};
}

std::uint64_t parse_integer(std::string_view token) {
  const std::string_view whole = token;
  int base = 10;
  if (token.ends_with('U'))
    token.remove_suffix(1);
  if (token.starts_with("0x") || token.starts_with("0X"))
    base = 16;
  else if (token.starts_with("0b") || token.starts_with("0B"))
    base = 2;
  if (base != 10)
    token.remove_prefix(2);
  else if (token.size() > 1 && token.front() == '0')
    base = 8;
  std::uint64_t value = 0;
  const char* const end = token.data() + token.size();
  const auto read = std::from_chars(token.data(), end, value, base);
  if (read.ec != std::errc() || read.ptr != end)
    refuse(fmt::format("{} is no number", whole));
  return value;
}

std::vector<std::string_view> split(std::string_view name) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t dot = name.find('.');
    parts.push_back(name.substr(0, dot));
    if (dot == std::string_view::npos)
      return parts;
    name.remove_prefix(dot + 1);
  }
}

std::string_view without_dot(std::string_view word) {
  return word.substr(1);
}

class Parser {
 public:
  explicit Parser(Module& module) : module_(module), tokens_(module.text) {}

  void run() {
    while (!tokens_.peek().empty()) parse_top();
  }
  [[nodiscard]] std::size_t line() const { return tokens_.line(); }

 private:
  void expect(std::string_view token) {
    if (!tokens_.take(token))
      refuse(fmt::format("'{}' stands where '{}' is expected", tokens_.peek(), token));
  }
  std::string_view expect_name() {
    if (!is_name(tokens_.peek()))
      refuse(fmt::format("'{}' stands where a name is expected", tokens_.peek()));
    return tokens_.next();
  }
  std::uint64_t expect_integer() {
    if (!is_number(tokens_.peek()))
      refuse(fmt::format("'{}' stands where a number is expected", tokens_.peek()));
    return parse_integer(tokens_.next());
  }
  void skip_to(std::string_view end) {
    while (!tokens_.peek().empty() && tokens_.next() != end) {
    }
  }
  void skip_line_directive();

  void parse_top();
  Variable parse_variable(Space space);
  void parse_initial(std::vector<Argument>& values);
  std::vector<Variable> parse_parameters();
  void parse_function(bool is_entry);
  void skip_attributes();
  void parse_body(Function& function);
  void parse_directive(Function& function, unsigned scope, std::string_view word);
  void parse_label(Function& function, unsigned scope, std::string_view name);
  void parse_statement(Function& function, unsigned scope, std::string_view first,
                       const char* begin);
  Argument parse_argument();
  std::vector<Argument> parse_arguments(std::string_view end);
  void parse_location();

  Module& module_;
  Tokens tokens_;
  unsigned file_ = 0;
  unsigned source_line_ = 0;
};

constexpr std::pair<std::string_view, Space> kSpaces[]{
    {".reg", Space::kRegister}, {".global", Space::kGlobal},
    {".const", Space::kConst},  {".shared", Space::kShared},
    {".local", Space::kLocal},  {".param", Space::kParam}};

std::optional<Space> space_named(std::string_view word) {
  for (const auto& [name, space] : kSpaces) {
    if (word == name)
      return space;
  }
  return std::nullopt;
}

// .loc 1 12 3, with ", function_name ..., inlined_at ..." behind it.
void Parser::parse_location() {
  file_ = static_cast<unsigned>(expect_integer());
  source_line_ = static_cast<unsigned>(expect_integer());
  expect_integer();
  while (tokens_.take(",")) {
    while (!tokens_.peek().empty() &&
           (tokens_.peek().starts_with("function_name") ||
            tokens_.peek().starts_with("inlined_at") || is_number(tokens_.peek()) ||
            tokens_.peek().starts_with('$') || tokens_.peek() == "+"))
      tokens_.next();
  }
}

void Parser::parse_top() {
  const std::string_view word = tokens_.next();
  if (word == ".version") {
    tokens_.next();
  } else if (word == ".target") {
    tokens_.next();
    while (tokens_.take(",")) tokens_.next();
  } else if (word == ".address_size") {
    if (expect_integer() != 64)
      refuse("addresses are not of 64 bits");
  } else if (word == ".file") {
    const auto number = static_cast<std::size_t>(expect_integer());
    const std::string_view name = tokens_.next();
    if (number >= 65536)
      refuse("a file has too high a number");
    module_.files.resize(std::max(module_.files.size(), number + 1));
    module_.files[number] = name.substr(1, name.size() - 2);
    while (tokens_.take(",")) tokens_.next();
  } else if (word == ".loc") {
    parse_location();
  } else if (word == ".pragma") {
    skip_to(";");
  } else if (word == ".section") {
    skip_to("{");
    skip_to("}");
  } else if (word == ".visible" || word == ".weak" || word == ".common") {
    // Of one module it makes no difference.
  } else if (word == ".extern") {
    if (tokens_.take(".func")) {
      parse_function(false);
      return;
    }
    const auto space = space_named(tokens_.next());
    if (!space)
      refuse("nothing known follows .extern");
    module_.variables.push_back(parse_variable(*space));
    expect(";");
  } else if (word == ".entry" || word == ".func") {
    parse_function(word == ".entry");
  } else if (const auto space = space_named(word)) {
    if (*space == Space::kRegister || *space == Space::kParam)
      refuse(fmt::format("{} stands outside of functions", word));
    do {
      module_.variables.push_back(parse_variable(*space));
    } while (tokens_.take(","));
    expect(";");
  } else {
    refuse(fmt::format("'{}' is not known", word));
  }
}

// Behind the space: ".align 16 .b8 name[64] = {1, 2}". A parameter's pointer
// attributes, ".ptr .global .align 16", are left out.
Variable Parser::parse_variable(Space space) {
  Variable variable{.space = space};
  bool has_type = false;
  bool is_aligned = false;
  unsigned elements = 1;
  while (tokens_.peek().starts_with('.')) {
    const std::string_view word = tokens_.next();
    if (word == ".align") {
      const std::size_t alignment = expect_integer();
      if (!has_type)
        variable.alignment = alignment;
      is_aligned = is_aligned || !has_type;
    } else if (word == ".v2" || word == ".v4") {
      elements = word == ".v2" ? 2 : 4;
    } else if (word.starts_with(".attribute")) {
      skip_to(")");
    } else if (const auto type = type_named(without_dot(word))) {
      variable.type = *type;
      has_type = true;
    } else if (!has_type) {
      // .tex, .texref, .samplerref, .surfref
      refuse(fmt::format("variables of type {} are not run here", word));
    }
  }
  variable.name = expect_name();
  const std::size_t unit = variable.type.bytes() * elements;
  if (!is_aligned)
    variable.alignment = unit;
  variable.size = unit;
  if (tokens_.take("<")) {
    variable.repeats = static_cast<unsigned>(expect_integer());
    expect(">");
  }
  while (tokens_.take("[")) {
    variable.size *= tokens_.peek() == "]" ? 0 : expect_integer();
    expect("]");
  }
  if (tokens_.take("=")) {
    parse_initial(variable.initial);
    if (variable.size == 0)
      variable.size = variable.initial.size() * unit;
  }
  return variable;
}

void Parser::parse_initial(std::vector<Argument>& values) {
  if (!tokens_.take("{")) {
    // generic(name), mask(0xff, name)
    if (tokens_.take("mask"))
      refuse("initial values by mask() are not run here");
    if (tokens_.take("generic")) {
      expect("(");
      values.push_back(parse_argument());
      expect(")");
    } else {
      values.push_back(parse_argument());
    }
    if (tokens_.take("+"))
      values.back().value += expect_integer();
    return;
  }
  do {
    if (tokens_.peek() != "}")
      parse_initial(values);
  } while (tokens_.take(","));
  expect("}");
}

std::vector<Variable> Parser::parse_parameters() {
  std::vector<Variable> parameters;
  if (!tokens_.take("("))
    return parameters;
  while (!tokens_.take(")")) {
    const std::string_view word = tokens_.next();
    if (word == ",")
      continue;
    const auto space = space_named(word);
    if (!space || (*space != Space::kParam && *space != Space::kRegister))
      refuse(fmt::format("'{}' stands among parameters", word));
    if (*space == Space::kRegister)
      refuse("parameters in registers are not run here");
    parameters.push_back(parse_variable(*space));
  }
  return parameters;
}

// .maxntid 128, 1, 1 and its like: a word, and numbers.
void Parser::skip_attributes() {
  while (!tokens_.peek().empty() && tokens_.peek() != "{" && tokens_.peek() != ";") {
    if (tokens_.peek() == ".pragma")
      skip_to(";");
    else
      tokens_.next();
  }
}

void Parser::parse_function(bool is_entry) {
  Function function{.is_entry = is_entry};
  if (!is_entry)
    function.results = parse_parameters();
  function.name = expect_name();
  function.parameters = parse_parameters();
  skip_attributes();
  if (tokens_.take("{")) {
    function.has_body = true;
    parse_body(function);
  } else {
    expect(";");
  }
  module_.functions.push_back(std::move(function));
}

void Parser::parse_label(Function& function, unsigned scope, std::string_view name) {
  Scope& in = function.scopes[scope];
  const std::string_view word = tokens_.peek();
  if (word == ".branchtargets" || word == ".calltargets") {
    tokens_.next();
    Table table{.name = name};
    do {
      table.targets.push_back(expect_name());
    } while (tokens_.take(","));
    expect(";");
    in.tables.push_back(std::move(table));
  } else if (word == ".callprototype") {
    skip_to(";");
  } else {
    in.labels.push_back({.name = name, .at = function.statements.size()});
  }
}

void Parser::parse_directive(Function& function, unsigned scope,
                             std::string_view word) {
  if (word == ".loc") {
    parse_location();
  } else if (word == ".pragma") {
    skip_to(";");
  } else if (const auto space = space_named(word)) {
    Variable variable = parse_variable(*space);
    function.scopes[scope].variables.push_back(variable);
    while (tokens_.take(",")) {
      variable.repeats = 0;
      variable.name = expect_name();
      if (tokens_.take("<")) {
        variable.repeats = static_cast<unsigned>(expect_integer());
        expect(">");
      }
      function.scopes[scope].variables.push_back(variable);
    }
    expect(";");
  } else {
    refuse(fmt::format("'{}' is not known in a function", word));
  }
}

void Parser::parse_body(Function& function) {
  function.scopes.emplace_back();
  unsigned scope = 0;
  while (true) {
    const char* const begin = tokens_.begin();
    const std::string_view word = tokens_.next();
    if (word.empty())
      refuse(fmt::format("{} has no end", function.name));
    if (word == "{") {
      function.scopes.push_back({.parent = scope});
      scope = static_cast<unsigned>(function.scopes.size() - 1);
    } else if (word == "}") {
      if (scope == 0)
        return;
      scope = function.scopes[scope].parent;
    } else if (word == ";") {
    } else if (word == "@" || !word.starts_with('.')) {
      if (word != "@" && tokens_.take(":"))
        parse_label(function, scope, word);
      else
        parse_statement(function, scope, word, begin);
    } else if (word == ".extern") {
      parse_directive(function, scope, tokens_.next());
    } else {
      parse_directive(function, scope, word);
    }
  }
}

void Parser::parse_statement(Function& function, unsigned scope, std::string_view first,
                             const char* begin) {
  Statement statement{.scope = scope, .file = file_, .line = source_line_};
  std::string_view opcode = first;
  if (first == "@") {
    statement.guard.is_negated = tokens_.take("!");
    statement.guard.predicate = expect_name();
    opcode = expect_name();
  }
  statement.modifiers = split(opcode);
  statement.opcode = statement.modifiers.front();
  statement.modifiers.erase(statement.modifiers.begin());
  statement.arguments = parse_arguments(";");
  statement.text = {begin, static_cast<std::size_t>(tokens_.end() - begin)};
  function.statements.push_back(std::move(statement));
}

std::vector<Argument> Parser::parse_arguments(std::string_view end) {
  std::vector<Argument> arguments;
  while (!tokens_.take(end)) {
    arguments.push_back(parse_argument());
    if (tokens_.take("|"))
      arguments.back().second = expect_name();
    if (!tokens_.take(",") && tokens_.peek() != end)
      refuse(fmt::format("'{}' stands where ',' or '{}' is expected", tokens_.peek(),
                         end));
  }
  return arguments;
}

Argument Parser::parse_argument() {
  Argument argument;
  if (tokens_.take("!")) {
    argument = parse_argument();
    argument.is_negated = true;
  } else if (tokens_.take("{")) {
    argument.kind = Argument::Kind::kVector;
    argument.parts = parse_arguments("}");
  } else if (tokens_.take("(")) {
    argument.kind = Argument::Kind::kList;
    argument.parts = parse_arguments(")");
  } else if (tokens_.take("[")) {
    argument.kind = Argument::Kind::kAddress;
    argument.parts.push_back(parse_argument());
    if (tokens_.take("+"))
      argument.value = parse_argument().value;
    while (tokens_.take(",")) argument.parts.push_back(parse_argument());
    expect("]");
  } else if (tokens_.take("-")) {
    argument = parse_argument();
    constexpr std::uint64_t kSign = std::uint64_t{1} << 63U;
    argument.value = argument.kind == Argument::Kind::kFloat ? argument.value ^ kSign
                                                             : ~argument.value + 1;
  } else if (const std::string_view token = tokens_.next(); token == "_") {
    argument.kind = Argument::Kind::kNone;
  } else if (is_name(token)) {
    argument = {.kind = Argument::Kind::kName, .name = token};
  } else if (is_number(token)) {
    const bool is_hex = token.starts_with("0x") || token.starts_with("0X");
    const std::string_view start = token.substr(0, 2);
    if (start == "0f" || start == "0F" || start == "0d" || start == "0D") {
      const bool is_single = start[1] == 'f' || start[1] == 'F';
      argument.kind = is_single ? Argument::Kind::kFloat32 : Argument::Kind::kFloat64;
      const char* const end = token.data() + token.size();
      const auto read = std::from_chars(token.data() + 2, end, argument.value, 16);
      if (read.ptr != end || token.size() != (is_single ? 10 : 18))
        refuse(fmt::format("{} is no number", token));
    } else if (!is_hex && token.find_first_of(".e") != std::string_view::npos) {
      double value = 0;
      std::from_chars(token.data(), token.data() + token.size(), value);
      argument = {.kind = Argument::Kind::kFloat,
                  .value = std::bit_cast<std::uint64_t>(value)};
    } else {
      argument = {.kind = Argument::Kind::kInteger, .value = parse_integer(token)};
    }
  } else {
    refuse(fmt::format("'{}' is no operand", token));
  }
  return argument;
}

}  // namespace

tl::expected<Module, std::string> parse(std::string text) {
  Module module{.text = std::move(text)};
  Parser parser(module);
  try {
    parser.run();
  } catch (const Unknown& unknown) {
    return tl::unexpected(fmt::format("line {}: {}", parser.line(), unknown.why));
  }
  return module;
}

}  // namespace kiln::ptx::syntax
