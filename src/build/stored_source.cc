#include "build/stored_source.h"

#include <algorithm>
#include <utility>

#include "codec/digest.h"
#include "codec/fields.h"
#include "util/bytes.h"
#include "util/try.h"

namespace kiln {
namespace {

void add(key::Texts& texts, std::string text) {
  std::string digest = Digest::of(as_bytes(text)).hex();
  texts.insert_or_assign(std::move(digest), std::move(text));
}

}  // namespace

std::string with_headers(const std::string& source,
                         const std::vector<compile::MemoryHeader>& headers) {
  std::size_t size = 0;
  Fields texts;
  for (const auto& [name, text] : headers) {
    size += text.size();
    if (size > kMostHeaderBytes)
      return source;
    texts.add(name, text);
  }
  if (headers.empty())
    return source;
  std::string section = source;
  section.push_back('\0');
  return section.append(as_text(texts.encode()));
}

Result<std::string> source_of(const cache::StoredObject& object) {
  std::string section = KILN_TRY(object.source());
  if (object.kind() != cache::Kind::kFiles)
    section.resize(std::min(section.find('\0'), section.size()));
  return section;
}

key::Texts texts_of(const cache::StoredObject& object) {
  key::Texts texts;
  const auto section = object.source();
  if (!section || object.kind() == cache::Kind::kFiles)
    return texts;
  const std::size_t end = std::min(section->find('\0'), section->size());
  add(texts, section->substr(0, end));
  if (end == section->size())
    return texts;
  if (auto headers = Fields::decode(as_bytes(*section).subspan(end + 1))) {
    for (const Field& header : headers->list()) add(texts, header.value);
  }
  return texts;
}

key::Texts texts_of(const PreparedRequest& request) {
  key::Texts texts;
  const auto* const given = request.as_source();
  if (given == nullptr)
    return texts;
  add(texts, given->source.source);
  for (const auto& [name, text] : given->source.headers) add(texts, text);
  return texts;
}

}  // namespace kiln
