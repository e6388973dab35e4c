#include "cache/entry.h"

#include <algorithm>
#include <tuple>

namespace kiln::cache {
namespace {

template <typename Value>
bool matches_any(const std::vector<Value>& wanted, const Value& value) {
  return wanted.empty() || std::ranges::find(wanted, value) != wanted.end();
}

bool matches(const ListQuery& query, const Entry& entry) {
  return matches_any(query.archs, entry.arch) &&
         matches_any(query.templates, entry.template_name) &&
         matches_any(query.kinds, entry.kind) &&
         (!query.unused_since_ns || entry.last_used_ns < *query.unused_since_ns);
}

// The key breaks ties, so that a listing always has the same order.
bool before(SortBy sort, const Entry& a, const Entry& b) {
  switch (sort) {
    case SortBy::kCreated:
      return std::tie(b.created_ns, a.key) < std::tie(a.created_ns, b.key);
    case SortBy::kUsed:
      return std::tie(b.last_used_ns, a.key) < std::tie(a.last_used_ns, b.key);
    case SortBy::kSize:
      return std::tie(b.size_bytes, a.key) < std::tie(a.size_bytes, b.key);
    case SortBy::kTemplate:
      return std::tie(a.template_name, a.key) < std::tie(b.template_name, b.key);
    case SortBy::kArch:
      return std::tie(a.arch, a.key) < std::tie(b.arch, b.key);
  }
  return a.key < b.key;
}

}  // namespace

std::vector<Entry> apply(const ListQuery& query, std::vector<Entry> entries) {
  std::erase_if(entries, [&](const Entry& entry) { return !matches(query, entry); });
  std::ranges::sort(entries, [&](const Entry& a, const Entry& b) {
    return before(query.sort, a, b);
  });
  if (query.limit && entries.size() > *query.limit)
    entries.resize(*query.limit);
  return entries;
}

}  // namespace kiln::cache
