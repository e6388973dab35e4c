// Any bytes as an object file, and as a list of fields.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <tuple>

#include "cache/fields.h"
#include "cache/metadata.h"
#include "cache/object.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  kiln::cache::Buffer buffer(size);
  std::copy(bytes.begin(), bytes.end(), buffer.data());
  if (const auto object =
          kiln::cache::StoredObject::parse(std::move(buffer), kiln::cache::Digest()))
    std::ignore = object->verify_fully();
  std::ignore = kiln::cache::Metadata::decode(bytes);
  if (const auto fields = kiln::cache::Fields::decode(bytes)) {
    if (!std::ranges::equal(fields->encode(), bytes))
      std::abort();  // an encoding that is not the only one
  }
  return 0;
}
