#include "remote/client/object_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

#include "cache/object_header.h"
#include "util/little_endian.h"

namespace kiln::remote {
namespace {

Rejected label_of(cache::Check check) {
  using cache::Check;
  switch (check) {
    case Check::kSize:
      return Rejected::kSize;
    case Check::kMagic:
    case Check::kFormat:
    case Check::kHeader:
    case Check::kMetadata:
    case Check::kSections:
      return Rejected::kFormat;
    case Check::kPayload:
    case Check::kTarget:
      return Rejected::kTarget;
    case Check::kChecksum:
    case Check::kKey:
    case Check::kPayloadDigest:
    case Check::kPreimageDigest:
      break;
  }
  return Rejected::kChecksum;
}

tl::unexpected<BadBody> refuse(Rejected check, std::string why) {
  return tl::unexpected<BadBody>(BadBody{.check = check, .why = std::move(why)});
}

tl::unexpected<BadBody> refuse(const cache::Rejection& rejection) {
  return refuse(
      label_of(rejection.check),
      fmt::format("{} check: {}", to_string(rejection.check), rejection.detail));
}

/// That its signatures count, and that it is not revoked, where any keys are trusted.
tl::expected<std::vector<KeyId>, BadBody> check_trust(
    const cache::StoredObject& object, std::span<const Signature> signatures,
    const Expected& expected) {
  const TrustedKeys nobody;
  const TrustedKeys& trusted = expected.trusted != nullptr ? *expected.trusted : nobody;
  if (trusted.revoked_objects.contains(object.key()))
    return refuse(Rejected::kSignature, "it is revoked");
  if (expected.takes_unsigned)
    return {};
  const auto digest = Blake2bHasher::of(object.file());
  auto by = digest ? check_signed(*digest, signatures, trusted)
                   : Result<std::vector<KeyId>>(tl::unexpect, digest.error());
  if (!by)
    return tl::unexpected<BadBody>(
        {Rejected::kSignature, by.error().message,
         !signatures.empty() && !is_any_known(signatures, trusted)});
  return *std::move(by);
}

}  // namespace

std::string_view to_string(Rejected check) {
  constexpr std::array<std::string_view, 5> kNames{"signature", "checksum", "format",
                                                   "target", "size"};
  return kNames[static_cast<std::size_t>(check)];
}

tl::expected<cache::StoredObject, BadBody> object_in(Bytes body,
                                                     const Expected& expected,
                                                     std::vector<KeyId>& signers) {
  const auto owner = std::make_shared<const Bytes>(std::move(body));
  const ByteView bytes = *owner;
  // Where it is no object, parse() says why.
  std::uint64_t size = bytes.size();
  if (as_text(bytes).starts_with(cache::header::kMagic) &&
      bytes.size() >= cache::header::kBytes)
    size = std::min(size, load_le<std::uint64_t>(bytes, cache::header::kFileBytes));
  const SignatureBlock block = signatures_at_end(bytes.subspan(size));
  if (block.size != bytes.size() - size)
    return refuse(Rejected::kSize,
                  fmt::format("{} bytes behind the object are no block of signatures",
                              bytes.size() - size));
  auto object =
      cache::StoredObject::parse(cache::Buffer(owner, bytes.first(size)), expected.key);
  if (!object)
    return refuse(object.error());
  if (!expected.target.empty() && object->target() != expected.target)
    return refuse(Rejected::kTarget, fmt::format("it is for {}, not {}",
                                                 object->target(), expected.target));
  // Before anything in it is decompressed or decoded.
  auto by = check_trust(*object, block.signatures, expected);
  if (!by)
    return tl::unexpected(std::move(by).error());
  signers = *std::move(by);
  if (const auto verified = object->verify_fully(); !verified)
    return refuse(verified.error());
  if (expected.payload_check) {
    if (const auto checked = expected.payload_check(*object); !checked)
      return refuse(Rejected::kTarget, checked.error().message);
  }
  return *std::move(object);
}

}  // namespace kiln::remote
