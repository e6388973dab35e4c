// What an object says about itself besides its payload. Stored as Fields; FORMAT.md,
// "Metadata", lists the labels.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/fields.h"
#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln::cache {

/// An entry point, or a variable of the image.
struct EntryPoint {
  std::string name;     // the name expression, "my::kernel<float>"
  std::string lowered;  // the mangled symbol
  friend bool operator==(const EntryPoint&, const EntryPoint&) = default;
};

struct Metadata {
  std::string template_name;  // empty for raw source
  std::vector<Field> params;
  std::string arch;       // as printed: "9.0a"
  std::string toolchain;  // "nvrtc-13.0-1a2b3c4d"
  std::vector<std::string> toolchain_build_ids;
  std::string producer;         // Kiln's version
  std::int64_t created_ns = 0;  // since 1970, UTC
  std::uint64_t compile_ms = 0;
  std::uint64_t registers = 0;  // of the entry point that uses most
  std::uint64_t shared_bytes = 0;
  std::uint64_t spill_bytes = 0;
  std::vector<EntryPoint> entry_points;
  std::vector<EntryPoint> variables;  // those that a name expression names
  std::string min_driver;             // "580.65", empty if unknown
  /// The program's name, of a source whose key has none.
  std::optional<std::string> program{};
  /// Where that name is, if only programs of that name may use the object: "image",
  /// "log".
  std::optional<std::string> program_in{};

  [[nodiscard]] Bytes encode() const;
  /// Unknown labels are skipped: a later version may add some.
  /// Errors: kCorrupt.
  [[nodiscard]] static Result<Metadata> decode(ByteView bytes);

  friend bool operator==(const Metadata&, const Metadata&) = default;
};

/// Decodes only the lowered names of an encoded Metadata, as views into it: every hit
/// needs them. Errors: kCorrupt.
[[nodiscard]] Result<std::vector<std::string_view>> lowered_names(ByteView encoded);

}  // namespace kiln::cache
