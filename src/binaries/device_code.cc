#include "binaries/device_code.h"

#include <ar.h>
#include <elf.h>
#include <fmt/format.h>
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <memory>

#include "device/cubin.h"
#include "util/elf_headers.h"
#include "util/try.h"
#include "util/units.h"
#include "util/words.h"

namespace kiln::binaries {
namespace {

using device::CubinHead;
using device::ImageKind;

constexpr std::string_view kElfMagic(ELFMAG, SELFMAG);
constexpr std::string_view kArchiveMagic(ARMAG, SARMAG);
constexpr std::string_view kThinMagic = "!<thin>\n";
constexpr std::uint64_t kMostSections = 1'000'000;
constexpr std::uint64_t kMostNameBytes = 64ULL << 20U;

tl::unexpected<Error> corrupt(const FatBinaryEntry& entry, std::string_view cause) {
  return fail(ErrorCode::kCorrupt, "{}: its image for {} cannot be decompressed: {}",
              entry.image.name(), to_string(entry.target), cause);
}

Result<Bytes> read_lz4(const FatBinaryEntry& entry, std::uint64_t most) {
  const int room = static_cast<int>(std::min<std::uint64_t>(most, LZ4_MAX_INPUT_SIZE));
  // So much holds `room` bytes, after the length of a run that may go on to the end.
  const std::uint64_t longest_length = entry.image.size() / 255 + 64;
  const Bytes stored = KILN_TRY(entry.image.read_up_to(
      0, static_cast<std::uint64_t>(LZ4_compressBound(room)) + longest_length));
  Bytes bytes(static_cast<std::size_t>(room));
  const int n =
      LZ4_decompress_safe_partial(reinterpret_cast<const char*>(stored.data()),
                                  reinterpret_cast<char*>(bytes.data()),
                                  static_cast<int>(stored.size()), room, room);
  if (n < 0)
    return corrupt(entry, "a bad LZ4 block");
  bytes.resize(static_cast<std::size_t>(n));
  return bytes;
}

/// Decompresses images, and keeps the memory of a decompressor for the next one.
/// Thread safety: none.
class ImageReader {
 public:
  ImageReader() : zstd_(ZSTD_createDCtx(), &ZSTD_freeDCtx) {}

  /// The first `most` bytes of the image; all of them, if it has no more. Decompresses
  /// and reads little beyond them. Errors: kCorrupt; kIo; kResourceLimit (memory).
  [[nodiscard]] Result<Bytes> read(const FatBinaryEntry& entry, std::uint64_t most) {
    const std::uint64_t wanted = std::min(most, entry.bytes);
    switch (entry.compression) {
      case Compression::kNone:
        return entry.image.read_up_to(0, wanted);
      case Compression::kLz4:
        return read_lz4(entry, wanted);
      case Compression::kZstd:
        return read_zstd(entry, wanted);
    }
    return corrupt(entry, "of no compression");
  }

 private:
  [[nodiscard]] Result<Bytes> read_zstd(const FatBinaryEntry& entry,
                                        std::uint64_t most) {
    constexpr std::uint64_t kChunk = 32ULL << 10U;
    if (zstd_ == nullptr)
      return fail(ErrorCode::kResourceLimit, "no memory for zstd");
    ZSTD_DCtx_reset(zstd_.get(), ZSTD_reset_session_only);
    Bytes bytes(most);
    ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
    std::size_t left = 1;  // 0 at the end of the frame
    for (std::uint64_t at = 0; left != 0 && out.pos < out.size; at += kChunk) {
      const Bytes chunk = KILN_TRY(entry.image.read_up_to(at, kChunk));
      if (chunk.empty())
        return corrupt(entry, "it is cut off");
      ZSTD_inBuffer in{chunk.data(), chunk.size(), 0};
      while (in.pos < in.size && out.pos < out.size && left != 0) {
        left = ZSTD_decompressStream(zstd_.get(), &out, &in);
        if (ZSTD_isError(left) != 0)
          return corrupt(entry, ZSTD_getErrorName(left));
      }
    }
    bytes.resize(out.pos);
    return bytes;
  }

  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> zstd_;  // null: no memory
};

/// The head of a cubin of the file `name`, of which `read` gives the first bytes, with
/// suffix and toolkit if it says them. They come after the names of all its symbols: at
/// 54 KiB in half of the cubins of PyTorch 2.15, at 6 MiB in one.
template <typename Read>
Result<CubinHead> find_whole_head(const std::string& name, const Read& read) {
  constexpr std::array<std::uint64_t, 3> kBegins{64ULL << 10U, 1ULL << 20U,
                                                 16ULL << 20U};
  CubinHead head;
  for (const std::uint64_t most : kBegins) {
    const Bytes begin = KILN_TRY(read(most));
    head = KILN_TRY(about(name, device::read_cubin_head(begin)));
    if ((head.suffix && head.toolkit) || begin.size() < most)
      break;
  }
  return head;
}

ImageDescription description_of(const CubinHead& head, Compression compression) {
  return {.target = {{head.capability, head.suffix.value_or(device::ArchSuffix::kNone)},
                     ImageKind::kCubin},
          .compression = compression,
          .toolkit = head.toolkit,
          .is_relocatable = head.is_relocatable};
}

Result<ImageDescription> describe(ImageReader& reader, const FatBinaryEntry& entry,
                                  bool is_relocatable) {
  constexpr std::uint64_t kHeader = 4096;
  ImageDescription image{entry.target, entry.compression, std::nullopt, is_relocatable};
  switch (entry.target.kind) {
    case ImageKind::kCubin: {
      const Bytes begin = KILN_TRY(reader.read(entry, kHeader));
      const CubinHead head =
          KILN_TRY(about(entry.image.name(), device::read_cubin_head(begin)));
      image.toolkit = head.toolkit;
      image.is_relocatable = head.is_relocatable;
      break;
    }
    case ImageKind::kPtx:
      image.toolkit = device::cuda_version_of_ptx(*entry.isa);
      break;
    case ImageKind::kLtoIr:
      image.is_relocatable = true;
      break;
  }
  return image;
}

/// Of cubins whose first bytes do not say it: one toolkit made all cubins of a fat
/// binary, so that only the smallest is decompressed as far as its note.
Result<void> add_toolkit(ImageReader& reader, const FatBinary& entries,
                         std::vector<ImageDescription>& images) {
  std::optional<device::CudaVersion> toolkit;
  const FatBinaryEntry* smallest = nullptr;
  for (std::size_t i = 0; i < images.size(); ++i) {
    if (images[i].target.kind != ImageKind::kCubin)
      continue;
    if (images[i].toolkit)
      toolkit = images[i].toolkit;
    else if (smallest == nullptr || entries[i].image.size() < smallest->image.size())
      smallest = &entries[i];
  }
  if (smallest == nullptr)
    return {};
  if (!toolkit)
    toolkit = KILN_TRY(find_whole_head(smallest->image.name(), [&](std::uint64_t most) {
                return reader.read(*smallest, most);
              })).toolkit;
  for (ImageDescription& image : images) {
    if (image.target.kind == ImageKind::kCubin && !image.toolkit)
      image.toolkit = toolkit;
  }
  return {};
}

/// nvcc compiles all of a fat binary with -rdc, or none; of PTX alone its section says
/// it, and a file of fat binaries has no sections.
void mark_ptx_beside_relocatable(std::vector<ImageDescription>& images) {
  const bool is_relocatable = std::ranges::any_of(images, [](const auto& image) {
    return image.target.kind == ImageKind::kCubin && image.is_relocatable;
  });
  for (ImageDescription& image : images) {
    if (image.target.kind == ImageKind::kPtx)
      image.is_relocatable = image.is_relocatable || is_relocatable;
  }
}

void add_image(DeviceCode& code, const ImageDescription& image, std::uint64_t bytes) {
  ImageTotals& totals = code.images[image];
  ++totals.count;
  totals.bytes += bytes;
}

void add_choice(DeviceCode& code, std::vector<ImageDescription> images) {
  std::erase_if(images, [](const auto& image) { return image.is_relocatable; });
  std::sort(images.begin(), images.end());
  if (!images.empty())
    ++code.choices[std::move(images)];
}

Result<void> add_fat_binaries(DeviceCode& code, const FileRange& section,
                              bool is_relocatable) {
  ImageReader reader;
  return read_fat_binaries(section, [&](const FatBinary& entries) -> Result<void> {
    std::vector<ImageDescription> images;
    for (const FatBinaryEntry& entry : entries)
      images.push_back(KILN_TRY(describe(reader, entry, is_relocatable)));
    KILN_TRY(add_toolkit(reader, entries, images));
    mark_ptx_beside_relocatable(images);
    for (std::size_t i = 0; i < images.size(); ++i)
      add_image(code, images[i], entries[i].image.size());
    add_choice(code, std::move(images));
    return {};
  });
}

Result<void> add_cubin(DeviceCode& code, const FileRange& file) {
  const auto head = KILN_TRY(find_whole_head(
      file.name(), [&](std::uint64_t most) { return file.read_up_to(0, most); }));
  const ImageDescription image = description_of(head, Compression::kNone);
  add_image(code, image, file.size());
  add_choice(code, {image});
  return {};
}

Result<void> add_ptx(DeviceCode& code, const FileRange& file) {
  constexpr std::uint64_t kMostPtx = 64ULL << 20U;
  if (file.size() > kMostPtx)
    return fail(ErrorCode::kResourceLimit, "{} is larger than any PTX", file.name());
  const Bytes text = KILN_TRY(file.read(0, file.size()));
  const auto info = KILN_TRY(about(file.name(), device::read_ptx(text)));
  const ImageDescription image{
      .target = {info.architecture, ImageKind::kPtx},
      .compression = Compression::kNone,
      .toolkit = device::cuda_version_of_ptx(info.isa.value_or(device::CudaVersion{})),
      .is_relocatable = false};
  add_image(code, image, file.size());
  add_choice(code, {image});
  return {};
}

struct SectionPlace {
  std::string name;
  FileRange bytes;
};

/// Those with bytes in the file, in its order, found without reading their bytes: a
/// library with device code may have gigabytes.
Result<std::vector<SectionPlace>> sections_of(const FileRange& file,
                                              const Elf64_Ehdr& header) {
  std::vector<SectionPlace> sections;
  if (header.e_shoff == 0)
    return sections;
  const Bytes first = KILN_TRY(file.read(header.e_shoff, sizeof(Elf64_Shdr)));
  const ElfSectionTable place =
      KILN_TRY(about(file.name(), elf_section_table(header, first, file.size())));
  if (place.count > kMostSections)
    return fail(ErrorCode::kResourceLimit, "{} has {} sections", file.name(),
                place.count);
  const Bytes table =
      KILN_TRY(file.read(header.e_shoff, place.count * sizeof(Elf64_Shdr)));
  if (place.names == SHN_UNDEF)
    return sections;
  const auto of_names = elf_entry<Elf64_Shdr>(table, place.names);
  if (of_names.sh_size > kMostNameBytes)
    return fail(ErrorCode::kResourceLimit, "{} has {} bytes of section names",
                file.name(), of_names.sh_size);
  const Bytes names = KILN_TRY(file.read(of_names.sh_offset, of_names.sh_size));
  for (std::size_t i = 0; i < place.count; ++i) {
    const auto each = elf_entry<Elf64_Shdr>(table, i);
    if (each.sh_type == SHT_NOBITS || each.sh_type == SHT_NULL)
      continue;
    const auto name = elf_string(names, each.sh_name);
    if (!name)
      return fail(ErrorCode::kCorrupt, "{}: bad ELF file: section {} has no name",
                  file.name(), i);
    FileRange content = KILN_TRY(file.part(each.sh_offset, each.sh_size));
    sections.push_back({std::string(*name), std::move(content)});
  }
  return sections;
}

Result<void> add_elf(DeviceCode& code, const FileRange& file) {
  const Elf64_Ehdr header = KILN_TRY(
      about(file.name(),
            read_elf_file_header(KILN_TRY(file.read_up_to(0, sizeof(Elf64_Ehdr))))));
  const auto sections = KILN_TRY(sections_of(file, header));
  if (header.e_machine == EM_CUDA)
    return add_cubin(code, file);
  code.machine = header.e_machine;
  for (const auto& [name, bytes] : sections) {
    if (name == ".nv_fatbin")
      KILN_TRY(add_fat_binaries(code, bytes, false));
    else if (name == "__nv_relfatbin")
      KILN_TRY(add_fat_binaries(code, bytes, true));
  }
  return {};
}

bool is_elf(ByteView begin) {
  return as_text(begin).starts_with(kElfMagic);
}

// nvcc writes a comment, or blank lines, before the first directive.
bool is_ptx(ByteView begin) {
  std::string_view text = as_text(begin);
  text.remove_prefix(std::min(text.find_first_not_of("\r\n\t "), text.size()));
  return text.starts_with("//") || text.starts_with(".version ");
}

/// An archive of objects, as ar writes it (ar(5), the System V format), or a thin one.
bool is_archive(ByteView begin) {
  return as_text(begin).starts_with(kArchiveMagic) ||
         as_text(begin).starts_with(kThinMagic);
}

// The number in a header's field of decimal digits and blanks.
Result<std::uint64_t> size_in(ByteView header, const FileRange& file) {
  std::string_view digits =
      as_text(header).substr(offsetof(ar_hdr, ar_size), sizeof(ar_hdr::ar_size));
  digits = digits.substr(0, digits.find(' '));
  const auto size =
      parse_number(digits, {0, std::numeric_limits<std::uint32_t>::max() * 16ULL});
  if (!size || !as_text(header).ends_with(ARFMAG))
    return fail(ErrorCode::kCorrupt, "{}: bad archive: a bad member's header",
                file.name());
  return *size;
}

/// Of the members those that are ELF files: others are tables of symbols and names.
Result<void> add_archive(DeviceCode& code, const FileRange& file) {
  if (as_text(KILN_TRY(file.read(0, SARMAG))) == kThinMagic)
    return fail(ErrorCode::kUnavailable,
                "{} is a thin archive: name the files that it lists", file.name());
  for (std::uint64_t at = SARMAG; at < file.size();) {
    const Bytes header = KILN_TRY(file.read(at, sizeof(ar_hdr)));
    const std::uint64_t size = KILN_TRY(size_in(header, file));
    at += sizeof(ar_hdr);
    const FileRange member = KILN_TRY(file.part(at, size));
    if (is_elf(KILN_TRY(member.read_up_to(0, kBeginBytes))))
      KILN_TRY(add_elf(code, member));
    at += size + size % 2;
  }
  return {};
}

Result<void> add_file(DeviceCode& code, const FileRange& file) {
  const Bytes begin = KILN_TRY(file.read_up_to(0, kBeginBytes));
  if (is_elf(begin))
    return add_elf(code, file);
  if (is_fat_binary(begin))
    return add_fat_binaries(code, file, false);
  if (is_archive(begin))
    return add_archive(code, file);
  if (is_ptx(begin))
    return add_ptx(code, file);
  return refuse("{} is no ELF file, archive, fat binary or PTX, and no wheel",
                file.name());
}

}  // namespace

bool is_binary(ByteView begin) {
  return is_elf(begin) || is_fat_binary(begin) || is_archive(begin);
}

Result<DeviceCode> read_device_code(const FileRange& file) {
  DeviceCode code{.path = file.name(), .machine = 0, .images = {}, .choices = {}};
  KILN_TRY(add_file(code, file));
  return code;
}

std::string_view kind_name(ImageKind kind) {
  return word_of(kind, {"sass", "ptx", "ltoir"});
}

std::string machine_name(std::uint16_t machine) {
  switch (machine) {
    case 0:
      return "";
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "AArch64";
    default:
      return fmt::format("machine {}", machine);
  }
}

std::string own_machine() {
  return machine_name(kOwnMachine);
}

}  // namespace kiln::binaries
