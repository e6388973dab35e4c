#include "tests/support/simulated_driver/image.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstring>

#include "codec/digest.h"
#include "util/little_endian.h"

namespace kiln::simulated {
namespace {

tl::unexpected<Refusal> bad(std::string why) {
  return tl::unexpected(Refusal{CUDA_ERROR_INVALID_IMAGE, std::move(why)});
}

// Where a cubin ends, from its file header: nothing of it lies behind both tables.
std::size_t cubin_size(const std::byte* data) {
  const ByteView header(data, sizeof(Elf64_Ehdr));
  const auto wide = [&](std::size_t at) { return load_le<std::uint64_t>(header, at); };
  const auto half = [&](std::size_t at) { return load_le<std::uint16_t>(header, at); };
  const std::size_t sections =
      wide(offsetof(Elf64_Ehdr, e_shoff)) +
      std::size_t{half(offsetof(Elf64_Ehdr, e_shnum))} * sizeof(Elf64_Shdr);
  const std::size_t segments =
      wide(offsetof(Elf64_Ehdr, e_phoff)) +
      std::size_t{half(offsetof(Elf64_Ehdr, e_phnum))} * sizeof(Elf64_Phdr);
  return std::max({sizeof(Elf64_Ehdr), sections, segments});
}

bool is_text(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 || c == '\n' || c == '\t' || c == '\r' || c == '\f';
}

tl::expected<Image, Refusal> with_digest(tl::expected<Image, Refusal> image,
                                         ByteView bytes) {
  if (image)
    image->sha256 = Digest::of(bytes).hex();
  return image;
}

}  // namespace

std::optional<Arch> parse_arch(std::string_view text) {
  for (const std::string_view prefix : {"sm_", "compute_"}) {
    if (text.starts_with(prefix))
      text.remove_prefix(prefix.size());
  }
  int number = 0;
  const auto [rest, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view suffix(
      rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  const bool is_known = suffix.empty() || suffix == "a" || suffix == "f";
  if (error != std::errc() || number < 10 || number > 999 || !is_known)
    return std::nullopt;
  return Arch{{number / 10, number % 10}, suffix.empty() ? '\0' : suffix.front()};
}

tl::expected<Image, Refusal> read_image(const void* data) {
  const char* const text = static_cast<const char*>(data);
  if (std::strncmp(text, ELFMAG, SELFMAG) == 0) {
    const auto* const bytes = static_cast<const std::byte*>(data);
    const ByteView whole(bytes, cubin_size(bytes));
    return with_digest(read_cubin(whole), whole);
  }
  std::size_t length = 0;
  while (is_text(text[length])) ++length;
  const std::string_view whole(text, length);
  if (text[length] != '\0' || whole.find(".version") == std::string_view::npos)
    return bad("neither a cubin nor PTX");
  return with_digest(read_ptx(whole), as_bytes(whole));
}

int toolkit_of_ptx(int ptx_version) {
  struct Row {
    int ptx;
    int toolkit;
  };
  constexpr std::array<Row, 19> kRows{{{90, 13000},
                                       {88, 12090},
                                       {87, 12080},
                                       {86, 12070},
                                       {85, 12050},
                                       {84, 12040},
                                       {83, 12030},
                                       {82, 12020},
                                       {81, 12010},
                                       {80, 12000},
                                       {78, 11080},
                                       {77, 11070},
                                       {76, 11060},
                                       {75, 11050},
                                       {74, 11040},
                                       {73, 11030},
                                       {72, 11020},
                                       {71, 11010},
                                       {70, 11000}}};
  if (ptx_version > kRows.front().ptx)
    return kRows.front().toolkit + (ptx_version - kRows.front().ptx) * 10;
  const auto found = std::find_if(kRows.begin(), kRows.end(), [&](const Row& row) {
    return row.ptx == ptx_version;
  });
  return found == kRows.end() ? 0 : found->toolkit;
}

}  // namespace kiln::simulated
