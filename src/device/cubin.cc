#include "device/cubin.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "util/elf.h"
#include "util/elf_headers.h"
#include "util/little_endian.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln::device {
namespace {

constexpr std::uint8_t kFirstAbiWithSmInSecondByte = 8;
constexpr std::uint32_t kOldFlagOfSuffixA = 0x800;  // ABI version 7
constexpr unsigned char kCudaEntry = 0x10;          // STO_CUDA_ENTRY in st_other

tl::unexpected<Error> corrupt(std::string_view what) {
  return fail(ErrorCode::kCorrupt, "bad image: {}", what);
}

// From the number in e_flags: 90 is 9.0, 103 is 10.3.
ComputeCapability capability_of(unsigned sm) {
  return {static_cast<int>(sm / 10), static_cast<int>(sm % 10)};
}

// The word after `key`, up to a blank, ',', '(', NUL or the end of the line.
std::optional<std::string_view> word_after(std::string_view text,
                                           std::string_view key) {
  const std::size_t found = text.find(key);
  if (found == std::string_view::npos)
    return std::nullopt;
  std::string_view rest = text.substr(found + key.size());
  constexpr std::string_view kBlanks = " \t";
  rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
  constexpr std::string_view kEnds(" \t\r\n,(\0", 7);
  return rest.substr(0, rest.find_first_of(kEnds));
}

constexpr std::uint32_t kToolkitInfo = 2000;
constexpr std::string_view kNvidia = "NVIDIA Corp";

// ".note.nv.tkinfo" holds ptxas's version, "Cuda compilation tools, release 13.0,
// V13.0.88", and its command line, "-arch sm_90a -m 64 ".
Result<std::optional<Architecture>> architecture_in_notes(const ElfFile& file) {
  for (const ElfNote& note : KILN_TRY(file.notes())) {
    if (note.name != kNvidia || note.type != kToolkitInfo)
      continue;
    const auto word = word_after(as_text(note.description), "-arch ");
    if (!word)
      continue;
    const auto architecture = parse_architecture(*word);
    if (!architecture)
      return corrupt(fmt::format("its toolkit note says -arch {}", *word));
    return *architecture;
  }
  return std::nullopt;
}

// What the kernel itself declares. From 9.0 on the section starts with 1 KiB that the
// system reserves; it is subtracted.
std::uint64_t static_shared_bytes_of(const ElfFile& file, ComputeCapability capability,
                                     const std::string& kernel) {
  const std::uint64_t reserved = capability.major >= 9 ? 1024 : 0;
  const ElfSection* section = file.find_section(".nv.shared." + kernel);
  if (section == nullptr)
    return 0;
  return section->size >= reserved ? section->size - reserved : section->size;
}

// libcudadevrt.a brings 32 kernels of its own, of local binding, into each cubin that
// it is linked into: "__nv_static_52__f4510a67_22_cuda_device_runtime_cu_...".
bool is_of_device_runtime(std::string_view name) {
  return name.starts_with("__nv_static_") &&
         name.find("_cuda_device_runtime_cu_") != std::string_view::npos;
}

bool is_entry_point(const ElfSymbol& symbol) {
  return symbol.type == STT_FUNC && (symbol.other & kCudaEntry) != 0 &&
         symbol.section != SHN_UNDEF && !is_of_device_runtime(symbol.name);
}

bool is_variable(const ElfSymbol& symbol) {
  constexpr unsigned char kCudaObject = STT_LOPROC;  // before it is linked
  return (symbol.type == STT_OBJECT || symbol.type == kCudaObject) &&
         symbol.section != SHN_UNDEF;
}

Result<ParameterSizes> parameters_in(const ElfFile& file, const std::string& kernel) {
  const ElfSection* section = file.find_section(".nv.info." + kernel);
  if (section == nullptr)
    return std::nullopt;
  return parameters_of(section->bytes, kernel);
}

Result<std::vector<EntryPoint>> entry_points_of(const ElfFile& file,
                                                ComputeCapability capability,
                                                const std::vector<ElfSymbol>& symbols) {
  const ElfSection* info = file.find_section(".nv.info");
  std::vector<EntryPoint> entry_points;
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    if (!is_entry_point(symbols[i]))
      continue;
    EntryPoint entry{.name = std::string(symbols[i].name), .registers = {}};
    if (info != nullptr)
      entry.registers = registers_of(info->bytes, i + 1);  // the null symbol is first
    entry.static_shared_bytes = static_shared_bytes_of(file, capability, entry.name);
    entry.parameters = KILN_TRY(parameters_in(file, entry.name));
    entry.is_local = symbols[i].binding == STB_LOCAL;
    entry_points.push_back(std::move(entry));
  }
  return entry_points;
}

struct CubinArchitecture {
  ComputeCapability capability;
  std::optional<ArchSuffix> suffix;  // as in CubinInfo
};

CubinArchitecture architecture_in_header(std::uint8_t abi_version,
                                         std::uint32_t flags) {
  if (abi_version >= kFirstAbiWithSmInSecondByte)
    return {capability_of(flags >> 8U & 0xFFU), std::nullopt};
  CubinArchitecture found{capability_of(flags & 0xFFU), std::nullopt};
  if ((flags & kOldFlagOfSuffixA) != 0)
    found.suffix = ArchSuffix::kA;
  return found;
}

Result<void> check_machine(std::uint16_t machine) {
  if (machine == EM_CUDA)
    return {};
  return corrupt(fmt::format("an ELF file for machine {}, not for CUDA", machine));
}

Result<CubinArchitecture> architecture_of(const ElfFile& file) {
  KILN_TRY(check_machine(file.machine()));
  CubinArchitecture found = architecture_in_header(file.abi_version(), file.flags());
  if (const auto noted = KILN_TRY(architecture_in_notes(file))) {
    if (noted->capability != found.capability) {
      return corrupt(fmt::format("its header says {}, its toolkit note {}",
                                 to_string(found.capability),
                                 to_string(noted->capability)));
    }
    found.suffix = noted->suffix;
  }
  return found;
}

Result<void> check_entry_points(std::span<const std::string_view> expected,
                                const std::vector<std::string_view>& present) {
  for (const std::string_view name : expected) {
    if (std::find(present.begin(), present.end(), name) == present.end()) {
      return fail(
          ErrorCode::kCorrupt, "the image has no entry point {}; it has {}", name,
          present.empty() ? "none" : fmt::format("{}", fmt::join(present, ", ")));
    }
  }
  return {};
}

tl::unexpected<Error> other_architecture(Target wanted, std::string_view found) {
  return fail(ErrorCode::kCorrupt, "the image is for {}, and {} was wanted", found,
              to_string(wanted));
}

// Runs on every cache hit, so it reads only what it compares.
Result<void> check_cubin(ByteView image, Target target,
                         std::span<const std::string_view> expected) {
  const ElfFile file = KILN_TRY(ElfFile::parse(image));
  const CubinArchitecture declared = KILN_TRY(architecture_of(file));
  const Architecture found{declared.capability,
                           declared.suffix.value_or(target.architecture.suffix)};
  if (found != target.architecture)
    return other_architecture(target, to_string(Target{found, ImageKind::kCubin}));
  const std::vector<ElfSymbol> symbols = KILN_TRY(file.symbols());
  std::vector<std::string_view> present;
  for (const ElfSymbol& symbol : symbols) {
    if (is_entry_point(symbol))
      present.push_back(symbol.name);
  }
  return check_entry_points(expected, present);
}

Result<void> check_ptx(ByteView image, Target target,
                       std::span<const std::string_view> expected) {
  const PtxInfo info = KILN_TRY(read_ptx(image));
  if (info.architecture != target.architecture)
    return other_architecture(target,
                              to_string(Target{info.architecture, ImageKind::kPtx}));
  std::vector<std::string_view> present;
  for (const EntryPoint& entry : info.entry_points) present.push_back(entry.name);
  return check_entry_points(expected, present);
}

// NVIDIA does not document what is in it: the architecture is not checked.
Result<void> check_lto_ir(ByteView image) {
  constexpr std::uint32_t kMagic = 0x7F4E43ED;
  if (image.size() <= sizeof(kMagic) || load_le<std::uint32_t>(image, 0) != kMagic)
    return corrupt("no LTO-IR");
  return {};
}

// The description of the toolkit note, found by its bytes: the table of sections is at
// the end of a cubin. memmem() because megabytes of names may come first.
std::string_view toolkit_note_in(ByteView begin) {
  constexpr std::size_t kTypeBytes = 4;  // before the name; the size is before it
  const std::string_view text = as_text(begin);
  std::size_t at = 0;
  while (const void* const found = ::memmem(text.data() + at, text.size() - at,
                                            kNvidia.data(), kNvidia.size())) {
    at = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
    const std::size_t start = at + kNvidia.size() + 1;
    if (at >= 2 * kTypeBytes && start < text.size() &&
        load_le<std::uint32_t>(begin, at - kTypeBytes) == kToolkitInfo)
      return text.substr(start, load_le<std::uint32_t>(begin, at - 2 * kTypeBytes));
    ++at;
  }
  return {};
}

// Removes the next line from `text` and returns it without leading blanks.
std::string_view take_line(std::string_view& text) {
  std::string_view line = next_part(text, "\n");
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  return line;
}

}  // namespace

Result<CubinInfo> read_cubin(ByteView image) {
  const ElfFile file = KILN_TRY(ElfFile::parse(image));
  const CubinArchitecture declared = KILN_TRY(architecture_of(file));
  const std::vector<ElfSymbol> symbols = KILN_TRY(file.symbols());
  auto entry_points = KILN_TRY(entry_points_of(file, declared.capability, symbols));
  CubinInfo info{declared.capability, declared.suffix, std::move(entry_points), {}};
  for (const ElfSymbol& symbol : symbols) {
    if (is_variable(symbol))
      info.variables.emplace_back(symbol.name);
  }
  return info;
}

Result<CubinHead> read_cubin_head(ByteView begin) {
  // From 13.0 on, and in some files of 12.x, it is 1, the version of ELF.
  constexpr std::uint32_t kFirstOldToolkit = 20;
  constexpr std::uint32_t kNoToolkit = 1000;
  const Elf64_Ehdr header = KILN_TRY(read_elf_file_header(begin));
  KILN_TRY(check_machine(header.e_machine));
  const auto [capability, suffix] =
      architecture_in_header(header.e_ident[EI_ABIVERSION], header.e_flags);
  CubinHead head{capability, suffix, std::nullopt, header.e_type == ET_REL};
  if (header.e_version >= kFirstOldToolkit &&
      header.e_version < kNoToolkit)  // 128: 12.8
    head.toolkit = CudaVersion{static_cast<int>(header.e_version / 10),
                               static_cast<int>(header.e_version % 10)};
  const std::string_view note = toolkit_note_in(begin);
  if (const auto word = word_after(note, "-arch ")) {
    if (const auto noted = parse_architecture(*word))
      head.suffix = noted->suffix;
  }
  if (const auto word = word_after(note, " release ")) {
    if (const auto release = parse_cuda_version(*word))
      head.toolkit = *release;
  }
  return head;
}

Result<PtxInfo> read_ptx(ByteView image) {
  constexpr std::string_view kVersion = ".version ";
  constexpr std::string_view kTarget = ".target ";
  constexpr std::string_view kEntry = ".entry ";
  std::string_view text = as_text(image);
  if (text.ends_with('\0'))
    text.remove_suffix(1);
  if (text.find('\0') != std::string_view::npos)
    return corrupt("PTX with a NUL inside");
  std::optional<Architecture> architecture;
  PtxInfo info;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (line.starts_with("//"))
      continue;
    if (!info.isa && line.starts_with(kVersion)) {
      if (const auto isa = parse_cuda_version(word_after(line, kVersion).value_or("")))
        info.isa = *isa;
    }
    if (!architecture && line.starts_with(kTarget)) {
      const auto word = word_after(line, kTarget);
      const auto parsed = parse_architecture(word.value_or(""));
      if (!parsed)
        return corrupt(fmt::format("PTX with the line '{}'", line));
      architecture = *parsed;
    }
    const bool is_local = line.starts_with(kEntry);
    const bool declares =
        is_local || line.starts_with(".visible ") || line.starts_with(".weak ");
    const auto name = declares ? word_after(line, kEntry) : std::nullopt;
    if (name && !name->empty())
      info.entry_points.push_back(
          {.name = std::string(*name), .registers = {}, .is_local = is_local});
  }
  if (!architecture)
    return corrupt("no PTX: it has no line .target");
  info.architecture = *architecture;
  return info;
}

Result<void> check_image(ByteView image, Target target,
                         std::span<const std::string_view> entry_points) {
  switch (target.kind) {
    case ImageKind::kCubin:
      return check_cubin(image, target, entry_points);
    case ImageKind::kPtx:
      return check_ptx(image, target, entry_points);
    case ImageKind::kLtoIr:
      return check_lto_ir(image);
  }
  return corrupt("of no kind");
}

}  // namespace kiln::device
