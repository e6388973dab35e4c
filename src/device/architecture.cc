#include "device/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "util/text.h"
#include "util/try.h"
#include "util/words.h"

namespace kiln::device {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kVirtual = "compute_";  // nvcc's virtual architectures
constexpr std::string_view kLto = "lto_";

std::string_view suffix_text(ArchSuffix suffix) {
  return word_of(suffix, {"", "a", "f"});
}

bool remove_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix))
    return false;
  text.remove_prefix(prefix.size());
  return true;
}

ArchSuffix take_suffix(std::string_view& text) {
  const ArchSuffix suffix = text.ends_with('a')   ? ArchSuffix::kA
                            : text.ends_with('f') ? ArchSuffix::kF
                                                  : ArchSuffix::kNone;
  if (suffix != ArchSuffix::kNone)
    text.remove_suffix(1);
  return suffix;
}

// One or two digits without a leading zero, then one digit.
std::optional<ComputeCapability> read_digits(std::string_view major,
                                             std::string_view minor) {
  if (major.empty() || major.size() > 2 || minor.size() != 1 || major.front() == '0' ||
      major.find_first_not_of(kDigits) != std::string_view::npos ||
      minor.find_first_not_of(kDigits) != std::string_view::npos)
    return std::nullopt;
  ComputeCapability capability;
  for (const char digit : major) capability.major = capability.major * 10 + digit - '0';
  capability.minor = minor.front() - '0';
  return capability;
}

std::optional<Architecture> read_architecture(std::string_view text) {
  const bool named = remove_prefix(text, "sm_") || remove_prefix(text, kVirtual) ||
                     remove_prefix(text, kLto);
  const ArchSuffix suffix = take_suffix(text);
  const std::size_t dot = text.find('.');
  std::optional<ComputeCapability> capability;
  if (dot == std::string_view::npos && !text.empty())
    capability =
        read_digits(text.substr(0, text.size() - 1), text.substr(text.size() - 1));
  else if (!named && dot != std::string_view::npos)
    capability = read_digits(text.substr(0, dot), text.substr(dot + 1));
  if (!capability)
    return std::nullopt;
  return Architecture{*capability, suffix};
}

}  // namespace

std::string to_string(Architecture architecture) {
  return to_string(architecture.capability).append(suffix_text(architecture.suffix));
}

std::string to_string(Target target) {
  const auto [capability, suffix] = target.architecture;
  const std::string_view prefix = target.kind == ImageKind::kCubin ? "sm_"
                                  : target.kind == ImageKind::kPtx ? kVirtual
                                                                   : kLto;
  return fmt::format("{}{}{}{}", prefix, capability.major, capability.minor,
                     suffix_text(suffix));
}

std::string arch_name(Target target) {
  return target.kind == ImageKind::kCubin ? to_string(target.architecture)
                                          : to_string(target);
}

Result<Target> parse_target(std::string_view text) {
  return Target{KILN_TRY(parse_architecture(text)),
                text.starts_with(kVirtual) ? ImageKind::kPtx
                : text.starts_with(kLto)   ? ImageKind::kLtoIr
                                           : ImageKind::kCubin};
}

Result<Architecture> parse_architecture(std::string_view text) {
  if (const auto architecture = read_architecture(text))
    return *architecture;
  return refuse(
      "'{}' is not an architecture; write 9.0, 90, sm_90 or compute_90, with the "
      "suffix a or f where it has one",
      text);
}

Result<TargetList> parse_target_list(std::string_view text) {
  TargetList list;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    const std::string_view element = trimmed(text.substr(start, comma - start), " ");
    start = comma + 1;
    if (element == "native") {
      list.native = true;
      continue;
    }
    if (element.empty()) {
      return refuse(
          "'{}' has an empty element; write a list of architectures like "
          "7.5,8.6,9.0a,native",
          text);
    }
    const Target target = KILN_TRY(parse_target(element));
    auto& known = list.targets;
    if (std::ranges::find(known, target) == known.end())
      known.push_back(target);
  }
  return list;
}

}  // namespace kiln::device
