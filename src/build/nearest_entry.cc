#include "build/nearest_entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "build/stored_source.h"
#include "util/try.h"

namespace kiln {

namespace {

constexpr std::size_t kMostKernels = 8;  // of a source, that are looked for

/// No pattern, whatever characters it has.
std::string exactly(std::string_view name) {
  std::string pattern;
  for (const char c : name) {
    if (std::string_view("*?[\\").find(c) != std::string_view::npos)
      pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace

std::string to_text(const std::vector<key::FieldDifference>& differences,
                    Quotes quotes) {
  if (differences.empty())
    return "";
  const key::FieldDifference& first = differences.front();
  std::string text = first.field;
  if (quotes == Quotes::kYes || !key::is_text(first.field))
    text += fmt::format(": {}, in the entry {}", first.a.empty() ? "none" : first.a,
                        first.b.empty() ? "none" : first.b);
  if (differences.size() > 1)
    text += fmt::format("; and {} more", differences.size() - 1);
  return text;
}

Likeness likeness_of(const PreparedRequest& request) {
  if (const request::TemplateRequest* const wanted = request.as_template())
    return {.template_name = wanted->kernel->name()};
  const std::vector<std::string>& all = request.kernels();
  const auto end =
      all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), kMostKernels));
  return {.file = request.file(), .kernels = {all.begin(), end}};
}

Result<NearestEntries::Candidates*> NearestEntries::candidates(const Likeness& like) {
  const auto known = read_.find(like);
  if (known != read_.end())
    return &known->second;
  cache::ListQuery query;
  query.limit = most_;
  if (!like.template_name.empty()) {
    query.templates = {like.template_name};
  } else {
    query.files = {exactly(like.file)};
    query.names = like.kernels;
  }
  auto entries = KILN_TRY(cache_.list(query));
  if (entries.empty() && if_none_ == IfNoneIsLike::kAnyEntry) {
    query.templates.clear();
    query.files.clear();
    query.names.clear();
    entries = KILN_TRY(cache_.list(query));
  }
  Candidates& found = read_[like];
  for (const cache::Entry& entry : entries) {
    const auto object = cache_.inspect(entry.key);
    if (!object || !*object)  // removed, or damaged
      continue;
    if (auto preimage = (*object)->preimage()) {
      found.preimages.push_back(*std::move(preimage));
      found.keys.push_back(entry.key);
    }
  }
  return &found;
}

Result<std::optional<NearestEntry>> NearestEntries::find(const Digest& key,
                                                         const Compared& wanted) {
  Candidates& found = *KILN_TRY(candidates(wanted.like));
  if (const auto own = std::ranges::find(found.keys, key); own != found.keys.end()) {
    found.preimages.erase(found.preimages.begin() + (own - found.keys.begin()));
    found.keys.erase(own);
  }
  const auto nearest = key::nearest_preimage(wanted.preimage, found.preimages);
  if (!nearest)
    return std::nullopt;
  const Digest& nearest_key = found.keys[*nearest];
  key::Texts texts = wanted.texts;
  if (!texts.empty()) {
    if (const auto object = cache_.inspect(nearest_key); object && *object)
      texts.merge(texts_of(**object));
  }
  return NearestEntry{
      nearest_key, key::differences(wanted.preimage, found.preimages[*nearest], texts)};
}

}  // namespace kiln
