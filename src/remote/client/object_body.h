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
#include "util/bytes.h"

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

/// The object in a body: its own bytes, and then a block of signatures or nothing; and
/// who signed it, where that is needed.
[[nodiscard]] tl::expected<cache::StoredObject, BadBody> object_in(
    Bytes body, const Expected& expected, std::vector<KeyId>& signers);

}  // namespace kiln::remote
