#include "remote/client/object_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

#include "cache/object_header.h"
#include "util/little_endian.h"
#include "util/try.h"

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

/// How many bytes of a body are the object's. Where it is no object, parse() says why.
std::uint64_t own_bytes(ByteView begin, std::uint64_t size) {
  if (!as_text(begin).starts_with(cache::header::kMagic) ||
      begin.size() < cache::header::kBytes)
    return size;
  return std::min(size, load_le<std::uint64_t>(begin, cache::header::kFileBytes));
}

/// That it is for that target, that its signatures count, and that it is not revoked,
/// where any keys are trusted. `hasher` has its bytes, where signatures are needed.
tl::expected<std::vector<KeyId>, BadBody> check_claims(
    std::string_view target, Blake2bHasher& hasher,
    std::span<const Signature> signatures, const Expected& expected) {
  if (!expected.target.empty() && target != expected.target)
    return refuse(Rejected::kTarget,
                  fmt::format("it is for {}, not {}", target, expected.target));
  const TrustedKeys nobody;
  const TrustedKeys& trusted = expected.trusted != nullptr ? *expected.trusted : nobody;
  if (trusted.revoked_objects.contains(expected.key))
    return refuse(Rejected::kSignature, "it is revoked");
  if (expected.takes_unsigned)
    return {};
  const auto digest = hasher.finish();
  auto by = digest ? check_signed(*digest, signatures, trusted)
                   : Result<std::vector<KeyId>>(tl::unexpect, digest.error());
  if (!by)
    return tl::unexpected<BadBody>(
        {Rejected::kSignature, by.error().message,
         !signatures.empty() && !is_any_known(signatures, trusted)});
  return *std::move(by);
}

/// The checks that need not all of it in memory. Errors: those of the file.
Result<tl::expected<void, BadBody>> check_in_steps(
    const FileRange& file, std::span<const Signature> signatures,
    const Expected& expected) {
  Blake2bHasher hasher;
  const auto target = KILN_TRY(
      cache::StoredObject::check_in_steps(file, expected.key, [&](ByteView step) {
        if (!expected.takes_unsigned)
          hasher.update(step);
      }));
  if (!target)
    return tl::expected<void, BadBody>(refuse(target.error()));
  return check_claims(*target, hasher, signatures, expected).map([](const auto&) {});
}

tl::expected<SignedObject, BadBody> object_in(Bytes bytes,
                                              std::span<const Signature> signatures,
                                              const Expected& expected) {
  const auto owner = std::make_shared<const Bytes>(std::move(bytes));
  auto object = cache::StoredObject::parse(cache::Buffer(owner, *owner), expected.key);
  if (!object)
    return refuse(object.error());
  Blake2bHasher hasher;
  if (!expected.takes_unsigned)
    hasher.update(object->file());
  // Before anything in it is decompressed or decoded.
  auto signers = check_claims(object->target(), hasher, signatures, expected);
  if (!signers)
    return tl::unexpected(std::move(signers).error());
  if (const auto verified = object->verify_fully(); !verified)
    return refuse(verified.error());
  if (expected.payload_check) {
    if (const auto checked = expected.payload_check(*object); !checked)
      return refuse(Rejected::kTarget, checked.error().message);
  }
  return SignedObject{*std::move(object), *std::move(signers)};
}

}  // namespace

std::string_view to_string(Rejected check) {
  constexpr std::array<std::string_view, 5> kNames{"signature", "checksum", "format",
                                                   "target", "size"};
  return kNames[static_cast<std::size_t>(check)];
}

Result<tl::expected<SignedObject, BadBody>> read_object(const FileRange& body,
                                                        const Expected& expected) {
  using Checked = tl::expected<SignedObject, BadBody>;
  const std::uint64_t size =
      own_bytes(KILN_TRY(body.read_up_to(0, cache::header::kBytes)), body.size());
  const std::uint64_t behind = body.size() - size;
  const auto [block_size, signatures] =
      signatures_at_end(KILN_TRY(body.read_up_to(size, kLargestSignatureBlock)));
  if (block_size != behind)
    return Checked(refuse(
        Rejected::kSize,
        fmt::format("{} bytes behind the object are no block of signatures", behind)));
  const FileRange own = KILN_TRY(body.part(0, size));
  // Else the bodies of those who lie would be in memory, one beside the other.
  if (size > FileRange::kStep) {
    auto checked = KILN_TRY(check_in_steps(own, signatures, expected));
    if (!checked)
      return Checked(tl::unexpected(std::move(checked).error()));
  }
  return object_in(KILN_TRY(own.read(0, size)), signatures, expected);
}

}  // namespace kiln::remote
