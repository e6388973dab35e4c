// Any bytes as a kernel.toml with a text beside it, and as a template's text.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "render/kernel_file.h"
#include "render/template_text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The first NUL parts the two files.
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = std::min(all.find('\0'), all.size());
  const std::string_view toml = all.substr(0, cut);
  const std::string text(all.substr(std::min(cut + 1, all.size())));
  if (const auto parsed = kiln::render::TemplateText::parse(text, "fuzz"))
    std::ignore = parsed->render({});
  static const auto prelude =
      kiln::render::make_prelude(kiln::render::DigestedText::of("// nothing\n"));
  const auto reader = kiln::render::FamilyReader::open(
      {.family = "fuzz",
       .label = "fuzz",
       .folder = {},
       .toml = kiln::render::DigestedText::of(std::string(toml)),
       .read_text =
           [&](const std::string&) -> kiln::Result<kiln::render::DigestedText> {
         return kiln::render::DigestedText::of(text);
       }},
      *prelude, kiln::render::VariantChecks::kTryAll);
  if (!reader)
    return 0;
  for (const std::string& name : (*reader)->names())
    std::ignore = (*reader)->read(name);
  return 0;
}
