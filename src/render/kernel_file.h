// Reads one family: a kernel.toml and the texts beside it, from wherever they come.

#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/digest.h"
#include "kiln/result.h"
#include "render/kernel_spec.h"

namespace kiln::render {

inline constexpr std::size_t kMaxTomlBytes = 512U << 10U;

/// The text that stands before every template's own.
struct Prelude {
  std::shared_ptr<const std::string> text;
  cache::Digest digest;
};

/// Errors: kInvalidArgument for a prelude with a tag or a NUL in it.
[[nodiscard]] Result<Prelude> make_prelude(std::string_view text);

/// Stands for the code that renders: its own sources and the Mustache header.
[[nodiscard]] cache::Digest renderer_digest();

struct FamilySource {
  std::string family;  // the folder's name
  std::string label;   // before file names in messages: "softmax", "/t/softmax"
  std::filesystem::path folder;  // empty: built in
  std::string_view toml;
  /// The text of a file beside kernel.toml.
  std::function<Result<std::string>(const std::string& name)> read_text;
};

/// Every kernel that the file declares, in its order.
/// Errors: kInvalidArgument "<file>:<line>: <reason>", and those of read_text.
[[nodiscard]] Result<std::vector<std::shared_ptr<const KernelSpec>>> read_family(
    const FamilySource& source, const Prelude& prelude, VariantChecks checks);

}  // namespace kiln::render
