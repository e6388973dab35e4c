#include "cache/entry.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "util/demangle.h"

namespace kiln::cache {
namespace {

template <typename Value>
bool matches_any(const std::vector<Value>& wanted, const Value& value) {
  return wanted.empty() || std::ranges::find(wanted, value) != wanted.end();
}

/// A name with template arguments is no pattern: '*' and '[' are characters of types.
/// "k<*>" is any instance.
bool is_pattern(std::string_view text) {
  const std::size_t arguments = text.find('<');
  return arguments == std::string_view::npos || text.substr(arguments) == "<*>";
}

bool fits(const std::string& pattern, std::string_view text) {
  return text == pattern ||
         (is_pattern(pattern) &&
          ::fnmatch(pattern.c_str(), std::string(text).c_str(), 0) == 0);
}

std::string_view last_part(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

/// "energy" of "phys::energy<a::b>" and of "_Z6energyi".
std::string plain_name(std::string_view given) {
  const std::string in_source = source_name(given);
  std::string_view name = in_source;
  name = name.substr(0, name.find('<'));
  const std::size_t scope = name.rfind("::");
  return std::string(scope == std::string_view::npos ? name : name.substr(scope + 2));
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

Entry entry_of(const Digest& key, Kind kind, Metadata&& metadata) {
  auto& [template_name, params, arch, toolchain, toolchain_build_ids, producer,
         created_ns, compile_ms, registers, shared_bytes, spill_bytes, entry_points,
         variables, min_driver, program, program_in] = metadata;
  return {.key = key,
          .kind = kind,
          .template_name = std::move(template_name),
          .params = std::move(params),
          .arch = std::move(arch),
          .toolchain = std::move(toolchain),
          .created_ns = created_ns,
          .compile_ms = compile_ms,
          .registers = registers,
          .shared_bytes = shared_bytes,
          .spill_bytes = spill_bytes,
          .file = std::move(program).value_or(""),
          .entry_points = std::move(entry_points.empty() ? variables : entry_points)};
}

void add_signers(const Signers::Known& known, Entry& entry) {
  entry.signed_by.clear();
  for (auto at = known.lower_bound({.key = entry.key, .created_ns = entry.created_ns});
       at != known.end() && at->first.key == entry.key &&
       at->first.created_ns == entry.created_ns;
       ++at)
    entry.signed_by.insert(entry.signed_by.end(), at->second.begin(), at->second.end());
}

std::string why_distrusted(const Entry& entry, const TrustedKeys& keys) {
  if (keys.revoked_objects.contains(entry.key))
    return "the object is revoked";
  for (const SignedBy& each : entry.signed_by) {
    if (each.payload != entry.signed_by.front().payload)
      return fmt::format(
          "objects with its key and time, and with different contents, were signed by "
          "the keys {} and {}",
          key_name(entry.signed_by.front().key), key_name(each.key));
  }
  std::size_t trusted = 0;
  std::string others;
  for (const SignedBy& each : entry.signed_by) {
    if (keys.trusts(each.key))
      ++trusted;
    else
      others +=
          fmt::format("; it is signed by the key {}, {} (from {})", key_name(each.key),
                      keys.revoked_keys.contains(each.key) ? "which is revoked"
                                                           : "which is unknown",
                      each.source);
  }
  if (entry.signed_by.empty() || trusted >= keys.signatures)
    return "";
  return fmt::format("it has {} of {} signatures{}", trusted, keys.signatures, others);
}

bool has_name(const Entry& entry, const std::string& name) {
  if (!entry.template_name.empty())
    return fits(name, entry.template_name);
  return std::ranges::any_of(entry.entry_points, [&](const EntryPoint& each) {
    const std::string whole = source_name(each.name);
    return fits(name, each.name) || fits(name, whole) ||
           fits(name, whole.substr(0, whole.find('<'))) ||
           fits(name, plain_name(each.name));
  });
}

bool matches(const ListQuery& query, const Entry& entry) {
  const auto any_of = [](const std::vector<std::string>& patterns, const auto& is_one) {
    return patterns.empty() || std::ranges::any_of(patterns, is_one);
  };
  return matches_any(query.archs, entry.arch) &&
         matches_any(query.templates, entry.template_name) &&
         matches_any(query.kinds, entry.kind) &&
         (query.signers.empty() || std::ranges::any_of(entry.signed_by,
                                                       [&](const SignedBy& each) {
                                                         return matches_any(
                                                             query.signers, each.key);
                                                       })) &&
         (query.distrusted_by == nullptr ||
          !why_distrusted(entry, *query.distrusted_by).empty()) &&
         (!query.unused_since_ns || entry.last_used_ns < *query.unused_since_ns) &&
         any_of(query.files,
                [&](const std::string& file) {
                  if (entry.file.empty())
                    return false;
                  return fits(file, entry.file) || fits(file, last_part(entry.file));
                }) &&
         any_of(query.names,
                [&](const std::string& name) { return has_name(entry, name); });
}

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
