#include "render/template_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <kainjow/mustache.hpp>
#include <utility>

#include "util/ascii.h"
#include "util/include_directives.h"
#include "util/nearest.h"
#include "util/try.h"

namespace kiln::render {

namespace {

namespace mustache = kainjow::mustache;

constexpr std::string_view kOpen = "<%";
constexpr std::string_view kClose = "%>";
constexpr std::size_t kMaxTagNameBytes = 64;

tl::unexpected<Error> error_at(std::string_view file, std::size_t line,
                               std::string_view what) {
  return refuse("{}:{}: {}", file, line, what);
}

}  // namespace

/// Splits a text into pieces; a stray "<%" or "%>" is an error.
class TextScanner {
 public:
  TextScanner(std::string_view text, std::string file) : text_(text) {
    out_.file_ = std::move(file);
  }

  Result<TemplateText> run() {
    KILN_TRY(check_lines());
    while (at_ < text_.size()) {
      const std::size_t open = std::min(text_.find(kOpen, at_), text_.size());
      KILN_TRY(take_text(text_.substr(at_, open - at_)));
      if (open < text_.size())
        KILN_TRY(take_tag());
    }
    if (!open_sections_.empty()) {
      const auto& [name, line] = open_sections_.back();
      return error_at(out_.file_, line,
                      fmt::format("section '{}' is never closed", name));
    }
    return std::move(out_);
  }

 private:
  using Piece = TemplateText::Piece;
  using PieceKind = TemplateText::PieceKind;
  using Mark = std::pair<char, PieceKind>;
  static constexpr std::array<Mark, 4> kMarks{{{'#', PieceKind::kSection},
                                               {'^', PieceKind::kInvertedSection},
                                               {'/', PieceKind::kEnd},
                                               {'!', PieceKind::kComment}}};

  [[nodiscard]] tl::unexpected<Error> error(std::string_view what) const {
    return error_at(out_.file_, line_, what);
  }

  Result<void> check_lines() {
    if (text_.size() > kMaxTextBytes)
      return refuse("{}: {} bytes, over the limit of {}", out_.file_, text_.size(),
                    kMaxTextBytes);
    std::size_t number = 1;
    for (std::size_t begin = 0; begin < text_.size(); ++number) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      const std::string_view line = text_.substr(begin, end - begin);
      if (line.find('\0') != std::string_view::npos)
        return error_at(out_.file_, number, "a NUL byte");
      if (is_include_line(line) && line.find(kOpen) != std::string_view::npos)
        return error_at(out_.file_, number,
                        "a tag in an #include line: put the whole line in a section");
      begin = end + 1;
    }
    return {};
  }

  Result<void> take_text(std::string_view text) {
    const std::size_t close = text.find(kClose);
    advance_lines(text.substr(0, close));
    if (close != std::string_view::npos)
      return error("'%>' without '<%'");
    if (!text.empty())
      out_.pieces_.push_back({PieceKind::kText, std::string(text), line_});
    at_ += text.size();
    return {};
  }

  void advance_lines(std::string_view text) {
    line_ += static_cast<std::size_t>(std::ranges::count(text, '\n'));
  }

  Result<void> take_tag() {
    std::size_t at = at_ + kOpen.size();
    PieceKind kind = PieceKind::kValue;
    const char mark = at < text_.size() ? text_[at] : '\0';
    if (const auto* const found = std::ranges::find(kMarks, mark, &Mark::first);
        found != kMarks.end()) {
      kind = found->second;
      ++at;
    }
    const auto skip_blanks = [&] {
      at = std::min(text_.find_first_not_of(" \t", at), text_.size());
    };
    skip_blanks();
    const std::size_t begin = at;
    while (at < text_.size() && is_name_char(text_[at])) ++at;
    const std::string name(text_.substr(begin, at - begin));
    skip_blanks();
    if (name.empty() || !is_name_start(name.front()) ||
        name.size() > kMaxTagNameBytes || text_.substr(at, kClose.size()) != kClose)
      return error(
          "'<%' that begins no tag: a tag is <%name%>, <%#name%>, <%^name%>, "
          "<%/name%> or <%!word%>; in a C++ string write \"<%\" \"...\"");
    KILN_TRY(count_section(kind, name));
    if (kind != PieceKind::kComment)
      out_.pieces_.push_back({kind, name, line_});
    at_ = at + kClose.size();
    return {};
  }

  Result<void> count_section(PieceKind kind, const std::string& name) {
    if (kind == PieceKind::kSection || kind == PieceKind::kInvertedSection) {
      open_sections_.emplace_back(name, line_);
      if (open_sections_.size() > kMaxSectionDepth)
        return error(fmt::format("sections nested over {} deep at '{}'",
                                 kMaxSectionDepth, name));
    } else if (kind == PieceKind::kEnd) {
      if (open_sections_.empty())
        return error(fmt::format("'<%/{}%>' closes no section", name));
      const auto& [opened, line] = open_sections_.back();
      if (opened != name)
        return error(fmt::format("'<%/{}%>' where section '{}' of line {} is open",
                                 name, opened, line));
      open_sections_.pop_back();
    }
    return {};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::vector<std::pair<std::string, std::size_t>> open_sections_;
  TemplateText out_;
};

Result<TemplateText> TemplateText::parse(std::string_view text, std::string file) {
  return TextScanner(text, std::move(file)).run();
}

Result<void> TemplateText::check(const TextNames& names) const {
  for (const Piece& piece : pieces_) {
    if (piece.kind == PieceKind::kText)
      continue;
    const auto at = names.find(piece.text);
    if (at == names.end()) {
      std::vector<std::string> known;
      for (const auto& [name, kind] : names) known.push_back(name);
      return error_at(file_, piece.line,
                      fmt::format("unknown name '{}' in a tag{}", piece.text,
                                  did_you_mean(piece.text, known)));
    }
    if (piece.kind != PieceKind::kValue && at->second != NameKind::kBoolean)
      return error_at(
          file_, piece.line,
          fmt::format("section over '{}', which is not a boolean", piece.text));
  }
  return {};
}

namespace {

/// The input of the Mustache engine: a skeleton of tags only, with every stretch of
/// text as a value. The engine parses no byte that a template's author wrote, so it
/// cannot mistake text for tags, escape it, or drop lines that look empty.
class Skeleton {
 public:
  Skeleton() : text_("{{=<% %>=}}") {}

  void add_text(const std::string& text) {
    const std::string name = fmt::format("t{}", chunks_++);
    data_.set(name, mustache::data(text));
    text_ += fmt::format("<%&{}%>", name);
  }
  void add_value(const std::string& name) { text_ += fmt::format("<%&v_{}%>", name); }
  void add_tag(char mark, const std::string& name) {
    text_ += fmt::format("<%{}b_{}%>", mark, name);
  }
  void set(const std::string& name, const std::string& value) {
    data_.set("v_" + name, mustache::data(value));
    data_.set("b_" + name, mustache::data(value == "true"));
  }

  Result<std::string> render() {
    mustache::mustache engine(text_);
    engine.set_custom_escape([](const std::string& text) { return text; });
    std::string out;
    engine.render(data_, [&out](const std::string& text) { out += text; });
    if (!engine.is_valid())
      return refuse(engine.error_message());
    return out;
  }

 private:
  std::string text_;
  mustache::data data_;
  std::size_t chunks_ = 0;
};

}  // namespace

Result<std::string> TemplateText::render(const TextValues& values) const {
  struct Open {
    bool inverted;
    std::size_t newlines;  // of all text within
  };
  Skeleton skeleton;
  std::vector<Open> open;
  for (const auto& [name, value] : values) skeleton.set(name, value);
  for (const Piece& piece : pieces_) {
    if (piece.kind != PieceKind::kText && !values.contains(piece.text))
      return error_at(file_, piece.line, fmt::format("no value for '{}'", piece.text));
    switch (piece.kind) {
      case PieceKind::kText:
        skeleton.add_text(piece.text);
        for (Open& section : open)
          section.newlines +=
              static_cast<std::size_t>(std::ranges::count(piece.text, '\n'));
        break;
      case PieceKind::kValue:
        skeleton.add_value(piece.text);
        break;
      case PieceKind::kSection:
      case PieceKind::kInvertedSection:
        open.push_back({piece.kind == PieceKind::kInvertedSection, 0});
        skeleton.add_tag(open.back().inverted ? '^' : '#', piece.text);
        break;
      case PieceKind::kEnd:
        skeleton.add_tag('/', piece.text);
        // Lines that are left out become blank, so that line numbers stay the same.
        skeleton.add_tag(open.back().inverted ? '#' : '^', piece.text);
        skeleton.add_text(std::string(open.back().newlines, '\n'));
        skeleton.add_tag('/', piece.text);
        open.pop_back();
        break;
      case PieceKind::kComment:
        break;
    }
  }
  return skeleton.render();
}

bool is_include_line(std::string_view line) {
  const std::size_t hash = line.find_first_not_of(" \t");
  if (hash == std::string_view::npos || line[hash] != '#')
    return false;
  const std::size_t word = line.find_first_not_of(" \t", hash + 1);
  return word != std::string_view::npos && line.substr(word).starts_with("include");
}

bool has_include(std::string_view text) {
  const auto found = find_directives(text);
  return !found || !found->list.empty() || found->build_time;
}

}  // namespace kiln::render
