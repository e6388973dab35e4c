// Any bytes as a pack, as signatures and as keys. No mutation finds a hash, so the pack
// is read a second time with all of them made to fit.

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <tuple>

#include "cache/pack.h"
#include "codec/signature.h"
#include "tests/fuzz/no_file_system.h"
#include "tests/fuzz/require.h"
#include "tests/support/sample_pack.h"

namespace {

using kiln::Bytes;
using kiln::ByteView;
using kiln::fuzz::require;
namespace cache = kiln::cache;

/// A file system of one file, which is not on disk.
class OneFile : public kiln::fuzz::NoFileSystem {
 public:
  explicit OneFile(ByteView bytes) : bytes_(bytes) {}
  int open(const char* /*path*/, int /*flags*/, mode_t /*mode*/) override {
    return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  ssize_t pread(int /*fd*/, std::byte* to, std::size_t size,
                std::uint64_t offset) override {
    require(offset + size <= bytes_.size());
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), size, to);
    return static_cast<ssize_t>(size);
  }
  int fstat(int /*fd*/, struct stat& info) override { return describe(info); }
  int lstat(const char* /*path*/, struct stat& info) override { return describe(info); }
  std::int64_t type(const char* /*path*/) override { return 0; }

 private:
  [[nodiscard]] int describe(struct stat& info) const {
    info = {};
    info.st_mode = S_IFREG | S_IRUSR;
    info.st_size = static_cast<off_t>(bytes_.size());
    return 0;
  }
  const ByteView bytes_;
};

void read(ByteView bytes) {
  OneFile files(bytes);
  const cache::TrustPolicy trust(0, {}, std::nullopt);
  const auto pack = cache::Pack::open("/x", {.file_system = files, .trust = trust});
  if (!pack)
    return;
  const auto& rows = (*pack)->rows();
  require(rows.size() == (*pack)->object_count() + (*pack)->toolchains().size());
  std::uint64_t taken = 0;
  for (const cache::PackRow& row : rows) {
    require(row.offset <= bytes.size() && row.size <= bytes.size() - row.offset);
    taken += row.size;
    const bool is_object = row.kind != cache::PackKind::kToolchain;
    require((*pack)->find(row.key).has_value() == is_object);
    if (const auto object = (*pack)->read(row))
      require(is_object && object->key() == row.key &&
              cache::pack_kind(object->kind()) == row.kind);
  }
  require(taken <= bytes.size());
  for (const cache::BadRow& row : (*pack)->bad_rows()) require(!row.why.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  read(bytes);
  const auto block = kiln::signatures_at_end(bytes);
  require(block.size <= size);
  const auto text = kiln::as_text(bytes);
  const auto keys = kiln::parse_trusted_keys(text);
  require(!keys || !keys->keys.empty() || !keys->revoked_keys.empty());
  std::ignore = kiln::check_minisig(text, {}, {});
  Bytes pack(bytes.begin(), bytes.end());
  constexpr std::size_t kLeast = 128;
  if (size < kLeast)
    return 0;
  kiln::test::store_bytes(pack, size - 8, kiln::as_bytes("KILNPEND"));
  kiln::test::store_le(pack, size - 16, std::uint64_t{size});
  const std::uint64_t rows = (size - kLeast) / kiln::test::kPackRowBytes;
  const auto count = kiln::load_le<std::uint64_t>(pack, size - 56) % (rows + 1);
  kiln::test::store_le(pack, size - 56, count);
  kiln::test::store_le(pack, size - 64,
                       std::uint64_t{size - 64 - count * kiln::test::kPackRowBytes});
  kiln::test::repair_pack(pack);
  read(pack);
  return 0;
}
