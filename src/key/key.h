// The key of a build: everything that determines its output, written field by field
// (the preimage) and hashed. Requests share a key exactly if they may share a result.
// Knows nothing of requests, templates or compilers: its inputs are plain structs.
// Never in a key: times, install paths, the order of unordered things. So if `__FILE__`
// or -lineinfo puts a header's path into the output, it is that of the first builder.

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

/// Raise it when equal preimages could mean different results; old entries then miss.
inline constexpr std::uint32_t kSchemaVersion = 2;

/// The program name of a source that has none of its own.
inline constexpr const char* kProgramName = "kernel.cu";

/// Where a compile runs that does not name another folder. NVRTC first looks there for
/// quoted includes of the source and of headers in memory.
inline constexpr const char* kWorkingDirectory = "/";

/// ELF build ids, lower-case hex.
struct ToolchainIdentity {
  std::string nvrtc;
  std::string builtins;
};

/// What a key contains besides what is built.
struct BuildContext {
  device::ImageKind kind = device::ImageKind::kCubin;
  std::string target;  // with suffix: "sm_90a", "compute_90"
  ToolchainIdentity toolchain;
};

/// Views; the caller owns the text.
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

/// A template without its parameters.
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

/// Whose options the compile has: Kiln's, too, or only those of nvrtcCompileProgram.
enum class SourceForm : std::uint8_t { kKiln, kNvrtc };

/// A source as the caller gives it. Order matters for `options`, for `include_dirs`,
/// and for `macros` of one name; nowhere else.
struct SourceKeyInput {
  std::string source;
  std::vector<std::string> options;
  std::vector<Macro> macros;
  std::vector<std::filesystem::path> include_dirs;  // -I; relative ones are below the
                                                    // process's working directory
  std::vector<MemoryHeader> memory_headers;
  std::vector<std::string> name_expressions;
  /// As NVRTC gets it, without a folder but for SourceForm::kNvrtc. It reaches the
  /// output: `__FILE__`, -lineinfo, -G, names of internal symbols.
  std::string program_name = kProgramName;
  /// False: the output is thought to be the same under all names, and the key has none.
  bool has_name = true;
  SourceForm form = SourceForm::kKiln;
  /// Absolute, with a '/' at its end.
  std::string working_directory = kWorkingDirectory;
  /// Paths that reach the output.
  std::vector<std::string> paths = {};
};

/// Moves every -I, -D and -U from the options of `input`, in order, to the end of
/// `include_dirs` and `macros`, and makes every include directory absolute. Call it
/// once, before the scan, the key and the compile, which must all see the same request.
/// Options that are forbidden in a request (request/resolve.h) must not be in it.
/// Errors: kInvalidArgument, naming the option whose value is missing.
[[nodiscard]] Result<SourceKeyInput> normalized(SourceKeyInput input);

/// The preimage of a raw source's key; its `digest()` is the key. `headers` is the scan
/// of the same input.
[[nodiscard]] Fields source_preimage(const BuildContext& context,
                                     const SourceKeyInput& input,
                                     const HeaderSnapshot& headers);

/// True of SourceForm::kNvrtc, whose preimage has digests of the source and the
/// headers, and no text of them.
[[nodiscard]] bool is_as_nvrtc(const Fields& preimage);

/// What nvJitLink makes one cubin of. Order matters in each list.
struct LinkKeyInput {
  std::string target;
  std::vector<std::string> options;
  std::vector<Digest> objects;  // the keys of what is compiled for it
  std::vector<Digest> files;    // of their contents
  std::string linker;           // nvJitLink's ELF build id
  std::string device_runtime;   // SHA-256 of libcudadevrt.a; "" if there is none
};

[[nodiscard]] Fields link_preimage(const LinkKeyInput& input);

/// Keys of one template for one target: everything but the parameters is encoded once.
/// Thread safety: immutable.
class TemplateKeys {
 public:
  /// `headers` is the scan of the template's text; empty if it includes nothing, like
  /// all of Kiln's own templates.
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
