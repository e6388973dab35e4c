#include "tests/support/ptx/operations/builtins.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "tests/support/ptx/memory.h"

namespace kiln::ptx {
namespace {

template <typename T>
T argument(const Lanes& lanes, const Instruction& instruction, std::size_t index,
           unsigned lane) {
  T value;
  std::memcpy(&value,
              lanes.at<std::byte>(instruction.operands[1 + index]) + lane * sizeof(T),
              sizeof value);
  return value;
}
template <typename T>
void give(const Lanes& lanes, const Instruction& instruction, unsigned lane, T value) {
  if (!instruction.operands[0].is_dropped())
    std::memcpy(lanes.at<std::byte>(instruction.operands[0]) + lane * sizeof(T), &value,
                sizeof value);
}

std::string text_at(const Lanes& lanes, const Instruction& instruction, unsigned lane,
                    std::uint64_t address) {
  std::string text;
  while (address != 0) {
    const std::byte each = *reach_one(
        lanes, instruction, {.lane = lane, .at = address + text.size(), .bytes = 1});
    if (each == std::byte{0})
      break;
    text += static_cast<char>(each);
  }
  return text;
}

/// One conversion of C's printf, with its value.
template <typename T>
std::string formatted(const std::string& conversion, T value) {
  std::array<char, 512> text{};
  // The program's own format. NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg)
  const int size = std::snprintf(text.data(), text.size(), conversion.c_str(), value);
  return size < 0 ? ""
                  : std::string(text.data(), std::min(static_cast<std::size_t>(size),
                                                      text.size() - 1));
}

// The arguments lie one behind the other, each at a multiple of its size.
class Values {
 public:
  Values(const Lanes& lanes, const Instruction& instruction, unsigned lane,
         std::uint64_t address)
      : lanes_(lanes), instruction_(instruction), lane_(lane), address_(address) {}

  template <typename T>
  T next() {
    at_ = (at_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    T value;
    std::memcpy(&value,
                reach_one(lanes_, instruction_,
                          {.lane = lane_, .at = address_ + at_, .bytes = sizeof(T)}),
                sizeof value);
    at_ += sizeof(T);
    return value;
  }

 private:
  const Lanes& lanes_;
  const Instruction& instruction_;
  unsigned lane_;
  std::uint64_t address_;
  std::uint64_t at_ = 0;
};

std::string print(const Lanes& lanes, const Instruction& instruction, unsigned lane) {
  const std::string format = text_at(
      lanes, instruction, lane, argument<std::uint64_t>(lanes, instruction, 0, lane));
  Values values(lanes, instruction, lane,
                argument<std::uint64_t>(lanes, instruction, 1, lane));
  std::string text;
  for (std::size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      text += format[at++];
      continue;
    }
    const std::size_t end =
        std::min(format.find_first_of("diouxXeEfFgGaAcsp%", at + 1), format.size() - 1);
    std::string conversion = format.substr(at, end - at + 1);
    at = end + 1;
    for (std::size_t star = 0; (star = conversion.find('*')) != std::string::npos;)
      conversion.replace(star, 1, std::to_string(values.next<int>()));
    const char kind = conversion.back();
    // What else a host's printf knows, a device's does not.
    if (conversion.find_first_not_of("%0123456789.-+ #hlzjt") !=
            conversion.size() - 1 ||
        (kind == 's' && conversion.find('l') != std::string::npos)) {
      text += conversion;
      continue;
    }
    const bool is_long = conversion.find_first_of("lzjt") != std::string::npos;
    if (kind == '%')
      text += '%';
    else if (std::string_view("eEfFgGaA").find(kind) != std::string_view::npos)
      text += formatted(conversion, values.next<double>());
    else if (kind == 's')
      text += formatted(
          conversion,
          text_at(lanes, instruction, lane, values.next<std::uint64_t>()).c_str());
    else if (kind == 'p')
      text += fmt::format("{:#x}", values.next<std::uint64_t>());
    else if (is_long)
      text += formatted(conversion, values.next<long long>());
    else
      text += formatted(conversion, values.next<int>());
  }
  return text;
}

void print(Lanes& lanes, const Instruction& instruction) {
  for_each_lane(lanes.mask, [&](unsigned lane) {
    lanes.block->grid.report.printed += print(lanes, instruction, lane);
    give(lanes, instruction, lane, std::int32_t{1});
  });
}

void fail_assertion(Lanes& lanes, const Instruction& instruction) {
  const unsigned lane = first_lane(lanes.mask);
  const auto text = [&](std::size_t index) {
    return text_at(lanes, instruction, lane,
                   argument<std::uint64_t>(lanes, instruction, index, lane));
  };
  throw Fault{kAssertion,
              fmt::format("{}:{}: {}: {}: Assertion `{}` failed", text(1),
                          argument<std::uint32_t>(lanes, instruction, 2, lane), text(3),
                          lanes.block->describe_thread(*lanes.warp, lane), text(0))};
}

constexpr std::uint64_t kHeapBytes = std::uint64_t{8} << 20U;  // a device's default

void allocate(Lanes& lanes, const Instruction& instruction) {
  Grid& grid = lanes.block->grid;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    const auto size = argument<std::uint64_t>(lanes, instruction, 0, lane);
    std::uint64_t used = 0;
    for (const auto& [address, bytes] : grid.heap_sizes) used += bytes;
    std::uint64_t address = 0;
    if (size <= kHeapBytes - std::min(used, kHeapBytes)) {
      grid.heap.push_back(std::make_unique<std::byte[]>(size + 1));
      address = reinterpret_cast<std::uint64_t>(grid.heap.back().get());
      grid.heap_sizes[address] = size;
    }
    give(lanes, instruction, lane, address);
  });
}
void release(Lanes& lanes, const Instruction& instruction) {
  Grid& grid = lanes.block->grid;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    const auto address = argument<std::uint64_t>(lanes, instruction, 0, lane);
    if (address != 0 && grid.heap_sizes.erase(address) == 0)
      throw Fault{
          kIllegalAddress,
          fmt::format("free() of {:#x}, which malloc() did not give, by {}", address,
                      lanes.block->describe_thread(*lanes.warp, lane))};
    grid.known = {};
  });
}

}  // namespace

Handler builtin_function(std::string_view name) {
  if (name == "vprintf")
    return &print;
  if (name == "__assertfail")
    return &fail_assertion;
  if (name == "malloc")
    return &allocate;
  return name == "free" ? &release : nullptr;
}

}  // namespace kiln::ptx
