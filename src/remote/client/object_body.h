// The object in the body of an answer, and what of it is believed.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "cache/object.h"
#include "cache/object_store.h"
#include "codec/digest.h"
#include "codec/signature.h"
#include "codec/trusted_keys.h"
#include "kiln/result.h"
#include "util/file_range.h"

namespace kiln::remote {

/// Which check an answer failed: the label of a metric.
enum class Rejected : std::uint8_t { kSignature, kChecksum, kFormat, kTarget, kSize };
/// "signature", "checksum", "format", "target", "size".
[[nodiscard]] std::string_view to_string(Rejected check);

struct BadBody {
  Rejected check;
  std::string why;
  bool is_of_others = false;  // signed by keys that are unknown here
};

/// What a body has to be.
struct Expected {
  Digest key;
  std::string target;  // empty: any
  const cache::PayloadCheck& payload_check;
  const TrustedKeys* trusted;  // null: nobody
  bool takes_unsigned;
};

struct SignedObject {
  cache::StoredObject object;
  std::vector<KeyId> signers;  // empty: nobody was needed
};

/// The object in a body: its own bytes, and then a block of signatures or nothing. A
/// body that has no right checksum, or no signatures where they are needed, is never in
/// memory as a whole. Errors: those of the file.
[[nodiscard]] Result<tl::expected<SignedObject, BadBody>> read_object(
    const FileRange& body, const Expected& expected);

}  // namespace kiln::remote
