#include "codec/library_id.h"

#include <cstdint>

#include "codec/digest.h"
#include "util/elf.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln {

Result<std::string> library_id(const std::filesystem::path& path) {
  constexpr std::uint64_t kLargest = 1ULL << 30U;
  auto id = read_build_id(path);
  if (id || id.error().code != ErrorCode::kNotFound)
    return id;
  const auto bytes = KILN_TRY(read_file(path, kLargest));
  if (!bytes)
    return id;
  return "sha256-" + Digest::of(*bytes).hex();
}

}  // namespace kiln
