#include "compile/worker/compile_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "util/text.h"

namespace kiln::compile {
namespace {

using namespace std::string_view_literals;

/// The text between `prefix`, which ends with a quote, and the next quote; nullopt if
/// the line does not contain `prefix`.
std::optional<std::string_view> quoted_after(std::string_view line,
                                             std::string_view prefix) {
  const auto at = line.find(prefix);
  if (at == std::string_view::npos)
    return std::nullopt;
  line.remove_prefix(at + prefix.size());
  return line.substr(0, line.find('\''));
}

/// The number that starts an item and the text after it; "8+16 bytes smem" is 24.
struct Item {
  std::uint64_t number = 0;
  std::string_view what;
};

std::optional<Item> parse_item(std::string_view item) {
  Item result;
  while (true) {
    std::uint64_t number = 0;
    const auto [end, error] =
        std::from_chars(item.data(), item.data() + item.size(), number);
    if (error != std::errc{})
      return std::nullopt;
    result.number += number;
    item.remove_prefix(static_cast<std::size_t>(end - item.data()));
    if (!item.starts_with('+'))
      break;
    item.remove_prefix(1);
  }
  result.what = item.starts_with(' ') ? item.substr(1) : item;
  return result;
}

/// Calls `take` for each item such as "12 bytes smem" in a comma-separated list. Skips
/// what comes before an item's number.
template <typename Take>
void for_each_item(std::string_view list, const Take& take) {
  while (!list.empty()) {
    const auto item = next_part(list, ",");
    const auto digit = item.find_first_of("0123456789");
    if (digit == std::string_view::npos)
      continue;
    if (const auto parsed = parse_item(item.substr(digit)))
      take(*parsed);
  }
}

bool is_frame_line(std::string_view line) {
  return line.find(" bytes stack frame, ") != std::string_view::npos;
}

bool is_resource_line(std::string_view line) {
  return line.starts_with("ptxas info") || is_frame_line(line);
}

void read_frame(std::string_view line, ResourceUse& use) {
  // The margin, "ptxas         .     ", has no digits.
  for_each_item(line, [&use](const Item& item) {
    if (item.what == "bytes stack frame")
      use.stack_bytes = std::max(use.stack_bytes, item.number);
    else if (item.what == "bytes spill stores")
      use.spill_store_bytes += item.number;
    else if (item.what == "bytes spill loads")
      use.spill_load_bytes += item.number;
  });
}

void read_used(std::string_view list, ResourceUse& use) {
  for_each_item(list, [&use](const Item& item) {
    if (item.what == "registers")
      use.registers = item.number;
    else if (item.what == "bytes smem")
      use.static_shared_bytes = item.number;
    else if (item.what == "bytes lmem" || item.what == "bytes cumulative stack size")
      use.stack_bytes = std::max(use.stack_bytes, item.number);
  });
}

}  // namespace

std::vector<ResourceUse> parse_resource_use(std::string_view log) {
  std::vector<ResourceUse> found;
  bool is_entry = false;  // do the properties that follow belong to found.back()?
  while (!log.empty()) {
    const auto line = next_part(log, "\n");
    if (!is_resource_line(line))
      continue;
    if (const auto entry = quoted_after(line, ": Compiling entry function '")) {
      found.push_back({.entry = std::string(*entry)});
      is_entry = true;
    } else if (found.empty()) {
      continue;
    } else if (const auto at = line.find(": Function properties for ");
               at != std::string_view::npos) {
      is_entry = line.ends_with(" " + found.back().entry);
    } else if (is_frame_line(line)) {
      if (is_entry)
        read_frame(line, found.back());
    } else if (const auto used = line.find(": Used "); used != std::string_view::npos) {
      read_used(line.substr(used + 2), found.back());
    }
  }
  return found;
}

std::string diagnostics(std::string_view log) {
  std::string kept;
  while (!log.empty()) {
    const auto line = next_part(log, "\n");
    if (is_resource_line(line))
      continue;
    kept.append(line).push_back('\n');
  }
  kept.erase(kept.find_last_not_of("\n \0"sv) + 1);
  return kept;
}

std::string shortened(std::string text, std::size_t end_bytes) {
  if (text.size() <= 2 * end_bytes)
    return text;
  // Not inside a character: a byte 10xxxxxx continues one in UTF-8.
  const auto goes_on = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
  };
  constexpr int kMostContinuing = 3;
  std::size_t begin = end_bytes;
  for (int i = 0; i < kMostContinuing && begin > 0 && goes_on(begin); ++i) --begin;
  std::size_t end = text.size() - end_bytes;
  for (int i = 0; i < kMostContinuing && end < text.size() && goes_on(end); ++i) ++end;
  text.replace(begin, end - begin,
               fmt::format("\n[... {} bytes are left out here ...]\n", end - begin));
  return text;
}

bool says_out_of_memory(std::string_view log) {
  while (!log.empty()) {
    const auto line = next_part(log, "\n");
    // A source can print any words after "#error directive:", but not here.
    constexpr std::string_view kCatastrophic = "catastrophic error: ";
    const auto at = line.find(kCatastrophic);
    if (at != std::string_view::npos &&
        line.substr(at + kCatastrophic.size()).starts_with("out of memory"))
      return true;
    if (line.starts_with("ptxas fatal") &&
        line.find("Memory allocation failure") != std::string_view::npos)
      return true;
  }
  return false;
}

}  // namespace kiln::compile
