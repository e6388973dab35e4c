// The key of a build: what determines its output, written down field by field (the
// preimage) and hashed. Two requests share a key exactly if they may share a result.
// Knows nothing of requests, templates or compilers: its inputs are plain structs.
// Never in a key: a time, an install path, the order of things without an order. So a
// header's path that `__FILE__` or -lineinfo puts into the output is that of whoever
// built it first.

#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/digest.h"
#include "codec/fields.h"
#include "device/architecture.h"
#include "key/header_snapshot.h"
#include "kiln/result.h"

namespace kiln::key {

/// Raised when equal preimages could mean different results: old entries then miss.
inline constexpr std::uint32_t kSchemaVersion = 1;

/// The program name that every compile gives to NVRTC. It reaches the cubin through
/// `__FILE__` and -lineinfo, so it must not depend on the request.
inline constexpr const char* kProgramName = "kernel.cu";

/// Where every compile runs. NVRTC looks for the quoted includes of the source, and of
/// headers in memory, there first.
inline constexpr const char* kWorkingDirectory = "/";

/// ELF build ids, lower-case hex.
struct ToolchainIdentity {
  std::string nvrtc;
  std::string builtins;
};

/// What a key says about the build apart from what is built.
struct BuildContext {
  device::ImageKind kind = device::ImageKind::kCubin;
  std::string target;  // with suffix: "sm_90a", "compute_90"
  ToolchainIdentity toolchain;
};

/// Views: the text belongs to the caller.
struct Parameter {
  std::string_view name;
  std::string_view value;  // canonical: equal meaning, equal text
};

/// Digests of everything that turns a template's parameters into source.
struct TemplateDigests {
  Digest text;
  Digest manifest;  // kernel.toml
  Digest prelude;
  Digest renderer;
};

/// A template, its parameters apart.
struct TemplateKeyInput {
  std::string kernel;
  TemplateDigests digests;
  std::vector<std::string> options;           // in the order given to NVRTC
  std::vector<std::string> name_expressions;  // in any order
};

enum class MacroAction : std::uint8_t { kDefine, kUndefine };

/// -D and -U: "NAME", "NAME=VALUE" or "NAME(x)=VALUE".
struct Macro {
  MacroAction action = MacroAction::kDefine;
  std::string text;
};

struct MemoryHeader {
  std::string name;  // exactly as an #include spells it
  std::string text;
};

/// A source as it is handed over. Order counts among `options`, `include_dirs`, and
/// `macros` of one name; nowhere else.
struct SourceKeyInput {
  std::string source;
  std::vector<std::string> options;
  std::vector<Macro> macros;
  std::vector<std::filesystem::path> include_dirs;  // -I; relative ones mean the
                                                    // process's working directory
  std::vector<MemoryHeader> memory_headers;
  std::vector<std::string> name_expressions;
};

/// `input` with every -I, -D and -U among its options moved, in order, behind those in
/// the lists that the key treats them by, and every include directory made absolute.
/// To be called once, before the scan, the key and the compile, which must all see the
/// same request.
/// Options that no request may have (request/resolve.h) must not be among them.
/// Errors: kInvalidArgument, naming the option whose value is missing.
[[nodiscard]] Result<SourceKeyInput> normalized(SourceKeyInput input);

/// The preimage of a raw source's key. `headers` is the scan of the same input. Its
/// `digest()` is the key.
[[nodiscard]] Fields source_preimage(const BuildContext& context,
                                     const SourceKeyInput& input,
                                     const HeaderSnapshot& headers);

/// Keys of one template for one target: everything but the parameters is encoded once.
/// Thread safety: immutable.
class TemplateKeys {
 public:
  /// `headers` is the scan of the template's text; empty where it includes none, as in
  /// all of Kiln's own.
  TemplateKeys(const BuildContext& context, const TemplateKeyInput& input,
               const HeaderSnapshot& headers = {});

  /// Equal to preimage(parameters).digest(), in about a microsecond. Parameters come
  /// in any order, each name once.
  [[nodiscard]] Digest key(std::span<const Parameter> parameters) const;
  [[nodiscard]] Fields preimage(std::span<const Parameter> parameters) const;

 private:
  Fields before_;  // the fields before and after the parameters
  Fields after_;
  Bytes encoded_before_;
  Bytes encoded_after_;
};

}  // namespace kiln::key
