#include "device/kernel_info.h"

#include <algorithm>
#include <functional>

#include "util/little_endian.h"
#include "util/try.h"

namespace kiln::device {
namespace {

// A record: a format byte, an attribute byte, then 16 bits: a value or, in format 4,
// the size of the payload that follows.
struct Record {
  std::uint8_t attribute = 0;
  std::uint16_t value = 0;
  ByteView payload;
};

// Reads the record at `at` and moves `at` past it; nullopt if it is truncated.
std::optional<Record> next_record(ByteView info, std::size_t& at) {
  constexpr std::uint8_t kSizedFormat = 4;
  constexpr std::size_t kHeadBytes = 4;
  const std::size_t room = info.size() - at;
  if (room < kHeadBytes)
    return std::nullopt;
  Record record;
  record.attribute = load_le<std::uint8_t>(info, at + 1);
  record.value = load_le<std::uint16_t>(info, at + 2);
  const bool is_sized = load_le<std::uint8_t>(info, at) == kSizedFormat;
  const std::size_t size = is_sized ? record.value : 0;
  if (size > room - kHeadBytes)
    return std::nullopt;
  record.payload = info.subspan(at + kHeadBytes, size);
  at += kHeadBytes + size;
  return record;
}

struct Parameter {
  std::uint16_t ordinal = 0;
  std::uint16_t offset = 0;  // from the first parameter
  std::size_t bytes = 0;
};

// Attribute 0x17 (KPARAM_INFO) has the size in the upper 14 bits of its last word; 0x45
// (kernels with more than 4 KiB of parameters) has it in the lower 16 bits.
std::optional<Parameter> read_parameter(const Record& record) {
  constexpr std::uint8_t kParameter = 0x17;
  constexpr std::size_t kPayloadBytes = 12;
  if (record.payload.size() != kPayloadBytes)
    return std::nullopt;
  const auto last = load_le<std::uint32_t>(record.payload, 8);
  return Parameter{
      .ordinal = load_le<std::uint16_t>(record.payload, 4),
      .offset = load_le<std::uint16_t>(record.payload, 6),
      .bytes = record.attribute == kParameter ? last >> 18U : last & 0xFFFFU};
}

bool is_parameter(const Record& record) {
  return record.attribute == 0x17 || record.attribute == 0x45;
}

// Whether each ordinal from 0 occurs once and no parameter ends after `total_bytes`.
bool is_whole(const std::vector<Parameter>& sorted, std::size_t total_bytes) {
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i].ordinal != i || sorted[i].offset + sorted[i].bytes > total_bytes)
      return false;
  }
  return true;
}

}  // namespace

std::optional<std::uint32_t> registers_of(ByteView info, std::size_t symbol) {
  constexpr std::uint8_t kRegisterCount = 0x2f;
  std::size_t at = 0;
  while (const auto record = next_record(info, at)) {
    if (record->attribute == kRegisterCount && record->payload.size() == 8 &&
        load_le<std::uint32_t>(record->payload, 0) == symbol)
      return load_le<std::uint32_t>(record->payload, 4);
  }
  return std::nullopt;
}

Result<ParameterSizes> parameters_of(ByteView info, std::string_view kernel) {
  constexpr std::uint8_t kTotalBytes = 0x19;  // CBANK_PARAM_SIZE; absent: 0
  const auto corrupt = [&](std::string_view what) {
    return fail(ErrorCode::kCorrupt, "bad image: {} of kernel {}", what, kernel);
  };
  std::vector<Parameter> parameters;
  std::size_t total_bytes = 0;
  std::size_t at = 0;
  while (at < info.size()) {
    const auto record = next_record(info, at);
    if (!record)
      return corrupt("the .nv.info section is cut off");
    if (record->attribute == kTotalBytes)
      total_bytes = record->value;
    if (!is_parameter(*record))
      continue;
    const auto parameter = read_parameter(*record);
    if (!parameter)
      return std::nullopt;
    parameters.push_back(*parameter);
  }
  if (parameters.empty() && total_bytes > 0)
    return std::nullopt;
  std::ranges::sort(parameters, std::less<>(), &Parameter::ordinal);
  // Sizes only help a launch, so an unknown encoding is no reason to refuse the image.
  if (!is_whole(parameters, total_bytes))
    return std::nullopt;
  std::vector<std::size_t> sizes;
  sizes.reserve(parameters.size());
  for (const Parameter& each : parameters) sizes.push_back(each.bytes);
  return sizes;
}

}  // namespace kiln::device
