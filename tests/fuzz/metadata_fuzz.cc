// Any bytes as a list of fields, and as an object's metadata.

#include <algorithm>
#include <cstdint>
#include <span>

#include "cache/metadata.h"
#include "codec/fields.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using kiln::cache::Metadata;
  using kiln::fuzz::require;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto fields = kiln::Fields::decode(bytes);
  // An encoding is the only one of its list.
  require(!fields || std::ranges::equal(fields->encode(), bytes));
  const auto names = kiln::cache::lowered_names(bytes);
  require(names.has_value() == fields.has_value());
  const auto metadata = Metadata::decode(bytes);
  if (!metadata)
    return 0;
  require(names && std::ranges::equal(*names, metadata->entry_points, {}, {},
                                      &kiln::cache::EntryPoint::lowered));
  const auto again = Metadata::decode(metadata->encode());
  require(again && *again == *metadata);
  return 0;
}
