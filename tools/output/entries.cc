#include "tools/output/entries.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <nlohmann/json.hpp>

#include "build/entry_label.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

/// A time before 1970 comes from a corrupt row.
std::string age_text(std::int64_t then_ns, std::int64_t now) {
  const std::int64_t then = std::max<std::int64_t>(0, then_ns);
  const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::nanoseconds(std::max<std::int64_t>(0, now - then)));
  return age < std::chrono::seconds(1) ? "now" : format_duration(age) + " ago";
}

/// Of nanoseconds since 1970: "2026-01-31T12:00:00Z".
std::string time_text(std::int64_t ns) {
  using std::chrono::duration_cast;
  using std::chrono::system_clock;
  return format_time(system_clock::time_point(
      duration_cast<system_clock::duration>(std::chrono::nanoseconds(ns))));
}

/// `[{"key","from"}]`; empty of what was built here or taken unsigned.
nlohmann::ordered_json signers_json(const std::vector<cache::SignedBy>& signers) {
  auto list = nlohmann::ordered_json::array();
  for (const cache::SignedBy& each : signers)
    list.push_back({{"key", key_name(each.key)}, {"from", each.source}});
  return list;
}

}  // namespace

nlohmann::ordered_json names_json(const std::vector<cache::EntryPoint>& names) {
  auto list = nlohmann::ordered_json::array();
  for (const cache::EntryPoint& name : names)
    list.push_back({{"name", name.name}, {"lowered", name.lowered}});
  return list;
}

nlohmann::ordered_json entry_json(const cache::Entry& entry) {
  using nlohmann::ordered_json;
  const auto& [key, kind, template_name, params, arch, toolchain, size_bytes,
               created_ns, last_used_ns, compile_ms, registers, shared_bytes,
               spill_bytes, file, entry_points, signed_by] = entry;
  const bool of_files = kind == cache::Kind::kFiles;
  return {{"key", key.hex()},
          {"kind", to_string(kind)},
          {"name", or_null(of_files ? template_name : entry_label(entry))},
          {"template", of_files ? nullptr : or_null(template_name)},
          {"file", or_null(file)},
          {"entry_points", names_json(entry_points)},
          {"params", params_of(entry)},
          {"arch", arch},
          {"size_bytes", size_bytes},
          {"created", time_text(created_ns)},
          {"last_used", time_text(last_used_ns)},
          {"toolchain", toolchain},
          {"compile_ms", compile_ms},
          {"registers", registers},
          {"shared_bytes", shared_bytes},
          {"spill_bytes", spill_bytes},
          {"signed_by", signers_json(signed_by)}};
}

std::vector<Column> entry_columns(std::string_view sort) {
  // The numbers: what goes first where the terminal is narrow.
  std::vector<Column> columns{
      {.title = "KEY"},
      {.title = "ARCH"},
      {.title = "KERNEL", .cut = Cut::kMiddle},  // variants differ at the end
      {.title = "KIND", .leave_out = 5},
      {.title = "SIZE", .align = Align::kRight, .leave_out = 1},
      {.title = "REGS", .align = Align::kRight, .leave_out = 6},
      {.title = "BUILT IN", .align = Align::kRight, .leave_out = 4},
      {.title = "CREATED", .align = Align::kRight, .leave_out = 2},
      {.title = "USED", .align = Align::kRight, .leave_out = 3},
      {.title = "TOOLCHAIN", .leave_out = 7}};
  for (Column& column : columns) {
    if (std::ranges::equal(column.title, sort, {}, {},
                           [](unsigned char c) { return std::toupper(c); }))
      column.leave_out = 0;
  }
  return columns;
}

std::vector<std::string> entry_row(const cache::Entry& entry, std::int64_t now) {
  return {entry.key.short_hex(),
          entry.arch,
          entry_label(entry),
          std::string(to_string(entry.kind)),
          format_size(entry.size_bytes),
          std::to_string(entry.registers),
          format_duration(std::chrono::milliseconds(entry.compile_ms)),
          age_text(entry.created_ns, now),
          age_text(entry.last_used_ns, now),
          entry.toolchain};
}

nlohmann::ordered_json preimage_json(const Fields& preimage) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Field& field : preimage.list())
    list.push_back({{"field", field.label}, {"value", field.value}});
  return list;
}

std::string format_preimage(const Fields& preimage) {
  std::string text;
  for (const Field& field : preimage.list()) {
    if (field.value.find('\n') == std::string::npos) {
      text += fmt::format("{}: {}\n", field.label, field.value);
      continue;
    }
    text += field.label + ":\n  ";
    for (const char c : field.value)
      text += c == '\n' ? std::string("\n  ") : std::string(1, c);
    text += '\n';
  }
  return text;
}

nlohmann::ordered_json differences_json(
    const std::vector<key::FieldDifference>& differences) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const key::FieldDifference& difference : differences) {
    list.push_back(
        {{"field", difference.field}, {"a", difference.a}, {"b", difference.b}});
  }
  return list;
}

std::string over_limit_text(const cache::Stats& stats) {
  if (stats.totals.bytes <= stats.limit_bytes)
    return "";
  return "over its limit: the next build that is stored removes the entries used least "
         "recently, except those of the last minute; `kiln trim --max-size SIZE` "
         "removes entries at once";
}

nlohmann::ordered_json header_json(const cache::PackHeader& header) {
  const auto& [producer, name, created_ns, serial, toolchains] = header;
  return {{"producer", producer},
          {"name", name},
          {"created", created_ns == 0 ? nlohmann::ordered_json(nullptr)
                                      : nlohmann::ordered_json(time_text(created_ns))},
          {"serial", serial},
          {"toolchains", toolchains}};
}

std::string header_text(const cache::PackHeader& header) {
  if (header.created_ns == 0)
    return "";
  return fmt::format("written as {} at {}, serial {}", printable_lines(header.name),
                     time_text(header.created_ns), header.serial);
}

std::string seed_text(const cache::SeedState& seed) {
  if (seed.error)
    return fmt::format("{}: not used: {}", seed.path.native(),
                       printable_lines(seed.error->message));
  if (!seed.is_pack)
    return fmt::format("{}: a cache root", seed.path.native());
  const std::string header = header_text(seed.header);
  return fmt::format("{}: {}, {}{}{}{}", seed.path.native(),
                     counted(seed.objects, "object", "objects"),
                     format_size(seed.bytes), header.empty() ? "" : ", ", header,
                     seed.bad_rows == 0
                         ? ""
                         : fmt::format("; not used: {}",
                                       counted(seed.bad_rows, "bad row", "bad rows")));
}

nlohmann::ordered_json seed_json(const cache::SeedState& seed) {
  const bool has_counts = seed.is_pack && !seed.error;
  const auto number = [&](std::uint64_t n) {
    return has_counts ? nlohmann::ordered_json(n) : nlohmann::ordered_json(nullptr);
  };
  return {{"path", seed.path.native()},
          {"kind", seed.is_pack ? "pack" : "root"},
          {"objects", number(seed.objects)},
          {"bytes", number(seed.bytes)},
          {"header", has_counts ? header_json(seed.header) : nullptr},
          {"error", seed.error ? error_json(*seed.error) : nullptr}};
}

void print_removal(const Context& context, const Removal& removal) {
  if (context.json) {
    nlohmann::ordered_json keys = nlohmann::ordered_json::array();
    for (const Digest& key : removal.keys) keys.push_back(key.hex());
    nlohmann::ordered_json document{{"removed", removal.keys.size()},
                                    {"precompiled", removal.precompiled},
                                    {"freed_bytes", removal.freed_bytes},
                                    {"dry_run", removal.dry_run},
                                    {"keys", keys}};
    print_json(document);
    return;
  }
  std::string what = counted(removal.keys.size(), "entry", "entries");
  if (removal.precompiled > 0)
    what += " and " +
            counted(removal.precompiled, "precompiled header", "precompiled headers");
  print(fmt::format("{} {}, {}\n", removal.dry_run ? "would remove" : "removed", what,
                    format_size(removal.freed_bytes)));
}

}  // namespace kiln::tools
