#include "build/nearest_entry.h"

#include <fmt/format.h>

#include <utility>

#include "build/stored_source.h"
#include "util/try.h"

namespace kiln {

std::string to_text(const std::vector<key::FieldDifference>& differences) {
  if (differences.empty())
    return "";
  const key::FieldDifference& first = differences.front();
  std::string text =
      fmt::format("{}: {}, in the entry {}", first.field, first.a, first.b);
  if (differences.size() > 1)
    text += fmt::format("; and {} more", differences.size() - 1);
  return text;
}

Likeness likeness_of(const PreparedRequest& request) {
  const request::TemplateRequest* const wanted = request.as_template();
  return {.template_name = wanted != nullptr ? wanted->kernel->name() : "",
          .file = request.file()};
}

Result<NearestEntries::Candidates*> NearestEntries::candidates(const Likeness& like) {
  const auto known = read_.find(like);
  if (known != read_.end())
    return &known->second;
  cache::ListQuery query;
  query.limit = most_;
  if (!like.template_name.empty())
    query.templates = {like.template_name};
  else
    query.files = {like.file};
  auto entries = KILN_TRY(cache_.list(query));
  if (entries.empty() && if_none_ == IfNoneIsLike::kAnyEntry) {
    query.templates.clear();
    query.files.clear();
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
  for (std::size_t i = 0; i < found.keys.size(); ++i) {
    if (found.keys[i] == key) {
      found.keys.erase(found.keys.begin() + static_cast<std::ptrdiff_t>(i));
      found.preimages.erase(found.preimages.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
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
