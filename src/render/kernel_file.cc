#include "render/kernel_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "kiln_renderer_digest.h"
#include "render/kernel_declarations.h"
#include "render/kernel_values.h"
#include "util/try.h"

namespace kiln::render {

namespace {

/// The names that a text may use: those to which KernelSpec gives values. Errors: one
/// stands for two things, or is that of an argument, too.
Result<TextNames> text_names(const Declarations& from, const KernelParts& parts) {
  TextNames names;
  std::string twice;
  const auto add = [&](const std::string& name, NameKind kind) {
    if (!names.emplace(name, kind).second)
      twice = name;
  };
  add("kernel", NameKind::kValue);
  for (std::size_t i = 0; i < parts.parameters.size(); ++i) {
    const Parameter& parameter = parts.parameters[i];
    add(parameter.name, parameter.type == ParameterType::kBoolean ? NameKind::kBoolean
                                                                  : NameKind::kValue);
    for (const std::size_t flag : parts.slots[i].flags)
      add(parts.symbols.name(flag), NameKind::kBoolean);
  }
  const auto kind_of = [&](std::size_t slot) {
    return parts.symbols.type(slot) == ValueType::kBoolean ? NameKind::kBoolean
                                                           : NameKind::kValue;
  };
  for (const Constant& constant : parts.constants)
    add(constant.name, constant.slot ? kind_of(*constant.slot) : NameKind::kValue);
  for (const Derived& derived : parts.derived) add(derived.name, kind_of(derived.slot));
  for (const LaunchArgument& argument : parts.arguments) {
    if (names.contains(argument.name))
      twice = argument.name;
  }
  if (!twice.empty())
    return toml_error(from.file, *from.kernel,
                      "{}: the name '{}' stands for two things", from.name, twice);
  return names;
}

/// For one text its own digest; for several the digest of a list of names and digests.
/// No text equals such a list, since a text has no NUL. Different inputs give different
/// lists, since a name has neither a NUL nor a line end.
Digest digest_of(const std::vector<std::string>& names,
                 const std::vector<Digest>& texts) {
  if (texts.size() == 1)
    return texts.front();
  std::string list;
  for (std::size_t i = 0; i < texts.size(); ++i)
    list += names[i] + '\0' + texts[i].hex() + '\n';
  return Digest::of(as_bytes(list));
}

}  // namespace

/// A text and what was read from it; several kernels of a file may share one.
struct FamilyReader::ReadText {
  DigestedText raw;
  std::optional<TemplateText> body;
  bool has_include = false;
};

/// The declarations point into the table.
struct FamilyReader::Document {
  toml::table table;
  std::vector<Declarations> kernels;
};

DigestedText DigestedText::of(std::string text) {
  const auto digest = Digest::of(as_bytes(text));
  return {std::move(text), digest};
}

Result<void> check_prelude_text(std::string_view text, std::string_view file) {
  if (text.size() > kMaxTextBytes)
    return refuse("{}: over the limit of {} bytes", file, kMaxTextBytes);
  for (const std::string_view bad :
       {std::string_view("<%"), std::string_view("%>"), std::string_view("\0", 1)}) {
    const std::size_t at = text.find(bad);
    if (at == std::string_view::npos)
      continue;
    const auto line =
        1 + std::count(text.begin(), text.begin() + static_cast<long>(at), '\n');
    return refuse("{}:{}: the prelude is plain text; '{}' cannot stand in it", file,
                  line, bad[0] == '\0' ? "NUL" : bad);
  }
  return {};
}

Result<Prelude> make_prelude(DigestedText prelude) {
  KILN_TRY(check_prelude_text(prelude.text, "prelude.cuh"));
  return Prelude{std::make_shared<const std::string>(std::move(prelude.text)),
                 prelude.digest};
}

Digest renderer_digest() {
  // The build writes 64 hex digits; with anything else a unit test fails.
  return Digest::from_hex(KILN_RENDERER_DIGEST).value_or(Digest());
}

FamilyReader::FamilyReader(FamilySource source, Prelude prelude, VariantChecks checks)
    : source_(std::move(source)),
      prelude_(std::move(prelude)),
      checks_(checks),
      toml_file_(source_.label + "/kernel.toml") {}

FamilyReader::~FamilyReader() = default;

Result<std::unique_ptr<FamilyReader>> FamilyReader::open(FamilySource source,
                                                         Prelude prelude,
                                                         VariantChecks checks) {
  std::unique_ptr<FamilyReader> reader(
      new FamilyReader(std::move(source), std::move(prelude), checks));
  auto document = std::make_unique<Document>();
  document->table = KILN_TRY(
      parse_toml(reader->source_.toml.text, reader->toml_file_, kMaxTomlBytes));
  document->kernels = KILN_TRY(read_declarations(document->table, reader->toml_file_));
  reader->document_ = std::move(document);
  return reader;
}

std::vector<std::string> FamilyReader::names() const {
  std::vector<std::string> names;
  for (const Declarations& kernel : document_->kernels) names.push_back(kernel.name);
  return names;
}

Result<std::shared_ptr<const KernelSpec>> FamilyReader::read(std::string_view name) {
  const auto& kernels = document_->kernels;
  const auto from = std::ranges::find(kernels, name, &Declarations::name);
  if (from == kernels.end())
    return fail(ErrorCode::kNotFound, "{}: no kernel '{}' there", toml_file_, name);
  KernelParts parts;
  parts.name = from->name;
  parts.summary = from->summary;
  parts.family = source_.family;
  parts.toml_file = toml_file_;
  parts.line = from->kernel->source().begin.line;
  parts.folder = source_.folder;
  parts.entry_points = from->entry_points;
  KILN_TRY(read_parameters(*from, parts));
  KILN_TRY(read_constants(*from, parts));
  KILN_TRY(read_derived(*from, parts));
  KILN_TRY(read_constraints(*from, parts));
  KILN_TRY(read_targets(*from, parts));
  KILN_TRY(read_launch(*from, parts));
  KILN_TRY(add_texts(from->sources, KILN_TRY(text_names(*from, parts)), parts));
  const SetDeclarations sets = KILN_TRY(read_sets(*from));
  return KernelSpec::make(std::move(parts), sets, checks_);
}

Result<void> FamilyReader::add_texts(const std::vector<std::string>& names,
                                     const TextNames& known, KernelParts& to) {
  std::vector<Digest> digests;
  for (const std::string& name : names) {
    const ReadText* text = KILN_TRY(read_text(name));
    if (text->body)
      KILN_TRY(text->body->check(known));
    to.sources.push_back({name, text->raw.text, text->body});
    to.has_include = to.has_include || text->has_include;
    digests.push_back(text->raw.digest);
  }
  to.prelude = prelude_.text;
  to.digests = {digest_of(names, digests), source_.toml.digest, prelude_.digest,
                renderer_digest()};
  return {};
}

Result<const FamilyReader::ReadText*> FamilyReader::read_text(const std::string& name) {
  const auto at = texts_.find(name);
  if (at != texts_.end())
    return &at->second;
  ReadText text;
  text.raw = KILN_TRY(source_.read_text(name));
  if (checks_ == VariantChecks::kTryAll) {
    text.body = KILN_TRY(
        TemplateText::parse(text.raw.text, fmt::format("{}/{}", source_.label, name)));
    text.has_include = has_include(text.raw.text);
  }
  return &texts_.emplace(name, std::move(text)).first->second;
}

}  // namespace kiln::render
