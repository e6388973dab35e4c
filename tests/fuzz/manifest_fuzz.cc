// Any bytes as a manifest; what is accepted must survive being written and read again.

#include <cstdint>
#include <string_view>

#include "request/manifest.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using kiln::fuzz::require;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto lines = kiln::request::parse_manifest(text, "fuzz");
  if (!lines)
    return 0;
  for (const auto& entry : *lines) {
    if (!entry)
      continue;
    const auto line = kiln::request::manifest_line(entry->request, entry->architecture);
    if (!line)
      continue;
    const auto again = kiln::request::parse_manifest(*line, "again");
    require(again && again->size() == 1 && again->front());
    const auto& [request, architecture, number] = *again->front();
    require(kiln::request::manifest_line(request, architecture).value_or("") == *line);
  }
  return 0;
}
