// Reads one family: a kernel.toml and the texts beside it, wherever they are stored.

#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codec/digest.h"
#include "kiln/result.h"
#include "render/kernel_spec.h"

namespace kiln::render {

inline constexpr std::size_t kMaxTomlBytes = 512U << 10U;

/// A text with its SHA-256.
struct DigestedText {
  std::string text;
  Digest digest;

  [[nodiscard]] static DigestedText of(std::string text);
};

/// The text in front of every template's own text.
struct Prelude {
  std::shared_ptr<const std::string> text;
  Digest digest;
};

/// Errors: kInvalidArgument for a prelude with a tag or a NUL in it.
[[nodiscard]] Result<Prelude> make_prelude(DigestedText text);

/// The same check for one of its files; messages call it `file`.
[[nodiscard]] Result<void> check_prelude_text(std::string_view text,
                                              std::string_view file);

/// The digest of the code that renders: its own sources and the Mustache header.
[[nodiscard]] Digest renderer_digest();

struct FamilySource {
  std::string family;  // the folder's name
  std::string label;   // prefix of file names in messages: "softmax", "/t/softmax"
  std::filesystem::path folder;  // empty: built in
  DigestedText toml;
  /// Reads a file beside kernel.toml.
  std::function<Result<DigestedText>(const std::string& name)> read_text;
};

/// A parsed kernel.toml; its kernels and the texts beside it are read one by one.
/// Thread safety: none.
class FamilyReader {
 public:
  /// Errors: kInvalidArgument "<file>:<line>: <reason>".
  [[nodiscard]] static Result<std::unique_ptr<FamilyReader>> open(FamilySource source,
                                                                  Prelude prelude,
                                                                  VariantChecks checks);
  FamilyReader(const FamilyReader&) = delete;
  FamilyReader& operator=(const FamilyReader&) = delete;
  ~FamilyReader();

  /// The names of the kernels that the file declares, in its order.
  [[nodiscard]] std::vector<std::string> names() const;

  /// Errors: as open(); kNotFound for a name that is not declared; those of read_text.
  [[nodiscard]] Result<std::shared_ptr<const KernelSpec>> read(std::string_view name);

 private:
  struct ReadText;
  struct Document;

  FamilyReader(FamilySource source, Prelude prelude, VariantChecks checks);
  /// `known`: what a text may name.
  [[nodiscard]] Result<void> add_texts(const std::vector<std::string>& names,
                                       const TextNames& known, KernelParts& to);
  [[nodiscard]] Result<const ReadText*> read_text(const std::string& name);

  // Constant after open().
  const FamilySource source_;
  const Prelude prelude_;
  const VariantChecks checks_;
  const std::string toml_file_;
  std::unique_ptr<const Document> document_;

  std::map<std::string, ReadText> texts_;
};

}  // namespace kiln::render
