#include "binaries/wheel.h"

#include <fmt/format.h>
#include <minizip/unzip.h>

#include <array>
#include <string>

#include "binaries/device_code.h"
#include "util/scratch_file.h"
#include "util/try.h"
#include "util/unique_handle.h"
#include "util/write_file.h"

namespace kiln::binaries {
namespace {

constexpr std::size_t kChunk = std::size_t{256} * 1024;
constexpr std::uint64_t kMostMemberBytes = 16ULL << 30U;

struct ZipTraits {
  using Raw = unzFile;
  static constexpr unzFile null() { return nullptr; }
  // Only says again that a member's checksum is wrong.
  static void close(unzFile file) noexcept { ::unzClose(file); }
};
using Zip = UniqueHandle<ZipTraits>;

tl::unexpected<Error> corrupt(const std::string& name) {
  return fail(ErrorCode::kCorrupt, "{}: bad zip archive", name);
}

// Up to a chunk of the current member; empty at its end.
Result<Bytes> next_chunk(unzFile zip, const std::string& name) {
  Bytes chunk(kChunk);
  const int n = ::unzReadCurrentFile(zip, chunk.data(), static_cast<unsigned>(kChunk));
  if (n < 0)
    return corrupt(name);
  chunk.resize(static_cast<std::size_t>(n));
  return chunk;
}

// The current member, which begins with `chunk`.
Result<FileRange> decompress(unzFile zip, const std::string& name, Bytes chunk) {
  UniqueFd scratch = KILN_TRY(open_scratch(temporary_folder()));
  std::uint64_t written = 0;
  for (; !chunk.empty(); chunk = KILN_TRY(next_chunk(zip, name))) {
    written += chunk.size();
    if (written > kMostMemberBytes)
      return fail(ErrorCode::kResourceLimit, "{} has more than {} bytes", name,
                  kMostMemberBytes);
    KILN_TRY(write_all(scratch.get(), chunk, name));
  }
  if (::unzCloseCurrentFile(zip) != UNZ_OK)
    return corrupt(name);
  return FileRange::of(std::move(scratch), name);
}

Result<std::string> current_name(unzFile zip, const std::filesystem::path& path) {
  std::array<char, 4096> name{};
  unz_file_info64 info{};
  if (::unzGetCurrentFileInfo64(zip, &info, name.data(), name.size() - 1, nullptr, 0,
                                nullptr, 0) != UNZ_OK)
    return corrupt(path.native());
  return fmt::format("{}:{}", path.native(), name.data());
}

}  // namespace

bool is_wheel(ByteView begin) {
  return as_text(begin).starts_with("PK\x03\x04");
}

Result<void> read_wheel(const std::filesystem::path& path,
                        const std::function<Result<void>(const FileRange&)>& take) {
  const Zip zip(::unzOpen64(path.c_str()));
  if (!zip)
    return corrupt(path.native());
  int found = ::unzGoToFirstFile(zip.get());
  for (; found == UNZ_OK; found = ::unzGoToNextFile(zip.get())) {
    const std::string name = KILN_TRY(current_name(zip.get(), path));
    if (::unzOpenCurrentFile(zip.get()) != UNZ_OK)
      return corrupt(name);
    Bytes begin = KILN_TRY(next_chunk(zip.get(), name));
    if (!is_binary(begin))
      continue;
    const FileRange member = KILN_TRY(decompress(zip.get(), name, std::move(begin)));
    KILN_TRY(take(member));
  }
  return found == UNZ_END_OF_LIST_OF_FILE ? Result<void>() : corrupt(path.native());
}

}  // namespace kiln::binaries
