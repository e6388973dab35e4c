// PTX ISA, "Extended-Precision Integer Arithmetic Instructions".

#include <array>

#include "tests/support/ptx/operations/elementwise.h"
#include "tests/support/ptx/operations/integer.h"

namespace kiln::ptx {
namespace {

// One carry flag a lane, CC.CF: the mask that ends the operands.
enum CarryMode : std::uint8_t {
  kReads = 1,
  kWrites = 2,
  kSubtracts = 4,
  kHigh = 8,
  kProduct = 16
};
template <typename T>
void with_carry(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const unsigned mode = instruction.mode;
  const bool is_product = (mode & kProduct) != 0;
  const auto* const a = lanes.at<T>(operands[1]);
  const auto* const b = lanes.at<T>(operands[2]);
  const auto* const c = is_product ? lanes.at<T>(operands[3]) : nullptr;
  auto* const to = lanes.at<T>(operands[0]);
  auto* const flag = lanes.at<std::uint32_t>(operands.back());
  std::uint32_t carries = *flag;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    const bool carry = (mode & kReads) != 0 && (*flag >> lane & 1U) != 0;
    using Wide = unsigned __int128;
    Wide left = a[lane];
    Wide right = b[lane];
    if (is_product) {
      left = Wide{a[lane]} * b[lane];
      left = static_cast<T>((mode & kHigh) != 0 ? left >> (8 * sizeof(T)) : left);
      right = c[lane];
    }
    const Wide result = (mode & kSubtracts) != 0 ? left - right - Wide{carry}
                                                 : left + right + Wide{carry};
    to[lane] = static_cast<T>(result);
    const bool is_out = (result >> (8 * sizeof(T)) & 1U) != 0;
    carries = (carries & ~(1U << lane)) | (std::uint32_t{is_out} << lane);
  });
  if ((mode & kWrites) != 0)
    *flag = carries;
}
void select_carry(Decoder& decoder, std::uint8_t mode) {
  if ((mode & kProduct) != 0 && decoder.take_one_of({"lo", "hi"}) == 1)
    mode |= kHigh;
  if (decoder.take("cc"))
    mode |= kWrites;
  const Type named = decoder.take_type();
  if (named.kind == Kind::kSigned && (mode & kHigh) != 0)
    decoder.refuse("a carry of a signed product is not computed here");
  const Type type = bits_of(named);
  if ((mode & kProduct) != 0)
    decoder.operands(type, {type, type, type});
  else
    decoder.operands(type, {type, type});
  decoder.made.operands.push_back(decoder.carry());
  decoder.made.mode = mode;
  decoder.made.run =
      type.bits == 64 ? &with_carry<std::uint64_t> : &with_carry<std::uint32_t>;
}
template <std::uint8_t kMode>
void select_carry(Decoder& decoder) {
  select_carry(decoder, kMode);
}

}  // namespace

void select_integer_with_carry(Decoder& decoder) {
  const std::string_view opcode = decoder.statement().opcode;
  select_carry(decoder, opcode == "sub"   ? std::uint8_t{kSubtracts}
                        : opcode == "mad" ? std::uint8_t{kProduct}
                                          : std::uint8_t{0});
}

std::span<const Operation> carry_operations() {
  static constexpr auto kAll = std::to_array<Operation>({
      {"addc", &select_carry<kReads>},
      {"subc", &select_carry<kReads | kSubtracts>},
      {"madc", &select_carry<kReads | kProduct>},
  });
  return kAll;
}

}  // namespace kiln::ptx
