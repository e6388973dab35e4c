#include "device/cubin.h"

#include "tests/support/elf_builder.h"
#include "tests/support/is_error.h"
#include "tests/support/test.h"

namespace kiln::device {
namespace {

using test::bytes_of_words;
using testing::Optional;

constexpr unsigned char kGlobalFunction = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);

Bytes toolkit_note(std::string_view arguments) {
  Bytes description(24);
  append(description, as_bytes(arguments));
  return test::make_note("NVIDIA Corp", 2000, description);
}

struct MadeCubin {
  std::uint8_t abi_version = 8;
  std::uint32_t flags = 0x06005a04;
  std::string arguments = "-arch sm_90a -m 64 ";
  std::vector<std::uint32_t> info_of_k{};  // words of .nv.info.k

  [[nodiscard]] Bytes build() const {
    test::ElfBuilder elf;
    elf.machine = 190;
    elf.abi_version = abi_version;
    elf.flags = flags;
    elf.add_section(".text.k", SHT_PROGBITS, Bytes(128));
    if (!arguments.empty())
      elf.add_section(".note.nv.tkinfo", SHT_NOTE, toolkit_note(arguments));
    elf.add_section(".nv.info", SHT_LOPROC, bytes_of_words({0x00082f04U, 2U, 24U}));
    if (!info_of_k.empty())
      elf.add_section(".nv.info.k", SHT_LOPROC, bytes_of_words(info_of_k));
    elf.add_section(".nv.shared.k", SHT_NOBITS, {}, 1024 + 512);
    elf.add_symbol("helper", kGlobalFunction, 0);
    elf.add_symbol("k", kGlobalFunction, 0x10);
    elf.add_symbol("own", ELF64_ST_INFO(STB_LOCAL, STT_FUNC), 0x10);
    elf.add_symbol("own_helper", ELF64_ST_INFO(STB_LOCAL, STT_FUNC), 0);
    elf.add_symbol("data", ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), 0x10);
    elf.add_symbol("elsewhere", kGlobalFunction, 0x10, SHN_UNDEF);
    return elf.build();
  }
};

// As ptxas 13.0 wrote it for (const float*, signed char, a struct of 24 bytes).
const std::vector<std::uint32_t> kThreeParameters{
    0x000c1704, 0,          0x00100002, 0x0061f000, 0x000c1704, 0,          0x00080001,
    0x0005f000, 0x000c1704, 0,          0x00000000, 0x0021f500, 0x00005003, 0x00281903};

Target target(std::string_view text, ImageKind kind = ImageKind::kCubin) {
  return {parse_architecture(text).value(), kind};
}

TEST(ReadCubin, TellsArchitectureEntryPointsAndResources) {
  const CubinInfo info = read_cubin(MadeCubin{}.build()).value();
  EXPECT_EQ(info.capability, (ComputeCapability{9, 0}));
  EXPECT_EQ(info.suffix, ArchSuffix::kA);
  ASSERT_EQ(info.entry_points.size(), 2U);
  EXPECT_EQ(info.entry_points[0], (EntryPoint{"k", 24, 512}));
}

// `static __global__`, or in an anonymous namespace: CUTLASS and DeepGEMM have such.
TEST(ReadCubin, AKernelOfLocalBindingIsAnEntryPoint) {
  const CubinInfo info = read_cubin(MadeCubin{}.build()).value();
  ASSERT_EQ(info.entry_points.size(), 2U);
  EXPECT_EQ(info.entry_points[1].name, "own");
  const std::vector<std::string_view> own{"own"};
  EXPECT_TRUE(check_image(MadeCubin{}.build(), target("sm_90a"), own));
}

ParameterSizes parameters(const std::vector<std::uint32_t>& info_of_k) {
  return read_cubin(MadeCubin{.info_of_k = info_of_k}.build())
      .value()
      .entry_points.at(0)
      .parameters;
}

TEST(ReadCubin, TellsTheSizesOfParametersInTheirOrder) {
  EXPECT_THAT(parameters(kThreeParameters), Optional(ElementsAre(8, 1, 24)));
}

// More than 4 KiB of them have records of their own.
TEST(ReadCubin, TellsTheSizesOfLargeParameters) {
  EXPECT_THAT(parameters({0x000c4504, 0, 0x13900001, 0x05000008, 0x000c4504, 0, 0,
                          0x00001390, 0x13981903}),
              Optional(ElementsAre(5008, 8)));
}

TEST(ReadCubin, AKernelWithoutParametersHasNone) {
  EXPECT_THAT(parameters({0x00005003, 0x00ff1b03}), Optional(IsEmpty()));
}

TEST(ReadCubin, SaysNothingOfParametersThatItCannotRead) {
  EXPECT_EQ(parameters({}), std::nullopt) << "no section";
  EXPECT_EQ(parameters({0x00081903}), std::nullopt) << "8 bytes, and nobody says whose";
  EXPECT_EQ(parameters({0x00101704, 0, 0, 0x0021f000, 0, 0x00081903}), std::nullopt)
      << "a record of another size";
}

TEST(ReadCubin, ParametersThatContradictThemselvesAreUnknownAndRefuseNoImage) {
  const auto with = [](std::size_t word, std::uint32_t value) {
    std::vector<std::uint32_t> info = kThreeParameters;
    info[word] = value;
    return info;
  };
  for (const auto& info : {with(2, 0x00100003),      // ordinals 0, 1, 3
                           with(2, 0x00100001),      // 0, 1, 1
                           with(2, 0x00110002),      // beyond the last byte
                           with(3, 0x0065f000),      // too large
                           with(13, 0x00201903)}) {  // fewer bytes than they take
    const auto cubin = read_cubin(MadeCubin{.info_of_k = info}.build());
    ASSERT_TRUE(cubin) << cubin.error().message;
    EXPECT_EQ(cubin->entry_points.at(0).parameters, std::nullopt);
  }
  std::vector<std::uint32_t> cut_off = kThreeParameters;
  cut_off[12] = 0x00ff1b04;
  EXPECT_THAT(read_cubin(MadeCubin{.info_of_k = cut_off}.build()),
              test::IsError(ErrorCode::kCorrupt, HasSubstr("of kernel k")));
}

TEST(ReadCubin, FindsTheSmNumberInTheFirstByteOfOlderAbis) {
  const MadeCubin old{.abi_version = 7, .flags = 0x00560556, .arguments = ""};
  const CubinInfo info = read_cubin(old.build()).value();
  EXPECT_EQ(info.capability, (ComputeCapability{8, 6}));
  EXPECT_EQ(info.suffix, std::nullopt);
  const MadeCubin specific{.abi_version = 7, .flags = 0x00000d5a, .arguments = ""};
  EXPECT_EQ(read_cubin(specific.build()).value().suffix, ArchSuffix::kA);
}

TEST(ReadCubin, SaysNothingOfTheSuffixWithoutTheNote) {
  EXPECT_EQ(read_cubin(MadeCubin{.arguments = ""}.build()).value().suffix,
            std::nullopt);
}

TEST(ReadCubin, ANoteThatContradictsTheHeaderIsCorrupt) {
  for (const char* arguments :
       {"-arch sm_80 -m 64", "-arch sm_100a", "-arch rubbish"}) {
    const auto info = read_cubin(MadeCubin{.arguments = arguments}.build());
    EXPECT_THAT(info, test::IsError(ErrorCode::kCorrupt)) << arguments;
  }
}

TEST(ReadCubin, AHostLibraryIsNoCubin) {
  test::ElfBuilder elf;
  EXPECT_THAT(read_cubin(elf.build()).error().message, HasSubstr("machine 62"));
}

TEST(ReadCubin, EveryTruncationIsCorruptAndNoFlippedBitCrashesIt) {
  const Bytes whole = MadeCubin{.info_of_k = kThreeParameters}.build();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_FALSE(read_cubin(cut)) << size;
  }
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    Bytes flipped = whole;
    flipped[bit / 8] ^= std::byte{static_cast<unsigned char>(1U << bit % 8)};
    std::ignore = read_cubin(flipped);  // may be fine or corrupt, but returns
  }
}

TEST(CheckImage, AcceptsWhatWasAskedFor) {
  const Bytes cubin = MadeCubin{}.build();
  const std::vector<std::string_view> expected{"k"};
  EXPECT_TRUE(check_image(cubin, target("9.0a"), expected));
  EXPECT_TRUE(check_image(cubin, target("9.0a"), {}));
}

TEST(CheckImage, NamesTheArchitectureThatDisagrees) {
  const Bytes cubin = MadeCubin{}.build();
  for (const char* other : {"8.0", "9.0", "10.0a"}) {
    const auto checked = check_image(cubin, target(other), {});
    EXPECT_THAT(checked, test::IsError(ErrorCode::kCorrupt,
                                       "the image is for sm_90a, and " +
                                           to_string(target(other)) + " was wanted"))
        << other;
  }
}

TEST(CheckImage, WithoutANoteTheSuffixCannotBeTold) {
  const Bytes cubin = MadeCubin{.arguments = ""}.build();
  EXPECT_TRUE(check_image(cubin, target("9.0"), {}));
  EXPECT_TRUE(check_image(cubin, target("9.0a"), {}));
  EXPECT_FALSE(check_image(cubin, target("8.0"), {}));
}

TEST(CheckImage, NamesTheEntryPointThatIsMissing) {
  const std::vector<std::string_view> expected{"k", "helper"};
  const auto checked = check_image(MadeCubin{}.build(), target("9.0a"), expected);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().message,
            "the image has no entry point helper; it has k, own");
}

TEST(CheckImage, ACubinIsNoPtxAndTheOtherWayRound) {
  const Bytes cubin = MadeCubin{}.build();
  const Bytes ptx = test::bytes_of(".version 9.0\n.target sm_90a\n");
  EXPECT_FALSE(check_image(cubin, target("9.0a", ImageKind::kPtx), {}));
  EXPECT_FALSE(check_image(ptx, target("9.0a"), {}));
  EXPECT_FALSE(check_image({}, target("9.0a"), {}));
  EXPECT_FALSE(check_image({}, target("9.0a", ImageKind::kPtx), {}));
}

constexpr std::string_view kPtx =
    "//\n// .target sm_70\n//\n\n.version 9.0\n.target sm_100f, texmode_independent\n"
    ".address_size 64\n\n\t// .globl\tk\n.visible .entry k(\n\t.param .u64 "
    "k_param_0\n)\n"
    "{\n\tret;\n}\n.entry bare\n{\n\tret;\n}\n.visible .func helper()\n.weak .entry "
    "w()\n";

TEST(ReadPtx, TellsTargetAndEntryPointsPastComments) {
  const PtxInfo info = read_ptx(as_bytes(kPtx)).value();
  EXPECT_EQ(info.architecture, (Architecture{{10, 0}, ArchSuffix::kF}));
  const auto entry = [](const char* name, bool is_local) {
    return EntryPoint{.name = name, .registers = {}, .is_local = is_local};
  };
  EXPECT_THAT(info.entry_points,
              ElementsAre(entry("k", false), entry("bare", true), entry("w", false)));
}

TEST(ReadPtx, AClosingNulIsNothingAndOneInsideIsCorrupt) {
  const std::string closed = std::string(kPtx) + '\0';
  EXPECT_TRUE(read_ptx(as_bytes(closed)));
  EXPECT_FALSE(read_ptx(as_bytes(closed + "\n.entry late()\n")));
}

TEST(ReadPtx, WithoutATargetIsCorrupt) {
  for (const char* text : {"", "\n", ".version 9.0\n", "// .target sm_90\n",
                           ".target \n", ".target sm_xx\n", ".targetsm_90\n"})
    EXPECT_FALSE(read_ptx(as_bytes(text))) << text;
}

TEST(ReadPtx, NoTruncationCrashesIt) {
  for (std::size_t size = 0; size < kPtx.size(); ++size) {
    const Bytes cut = test::bytes_of(kPtx.substr(0, size));
    std::ignore = read_ptx(cut);  // may be whole enough
  }
}

}  // namespace
}  // namespace kiln::device
