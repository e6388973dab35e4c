// Any bytes as a manifest; what is accepted must survive being written and read again.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "request/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto entries = kiln::request::parse_manifest(text, "fuzz");
  if (!entries)
    return 0;
  for (const auto& entry : *entries) {
    const auto line = kiln::request::manifest_line(entry.request, entry.architecture);
    if (line && !kiln::request::parse_manifest(*line, "again"))
      std::abort();
  }
  return 0;
}
