// What a program asks Kiln for: a kernel by name and parameters, or CUDA C++ source.

#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kiln/export.h"

namespace kiln {

/// Parameter name to value, both as text: {{"dtype", "bf16"}, {"max_cols", "128"}}.
using Parameters = std::map<std::string, std::string>;

/// CUDA C++ source and everything that its compilation depends on. C++17, unless
/// `options` has another --std.
struct SourceOptions {
  std::string source;
  /// The name in messages. Only its last component reaches the key and the compiler:
  /// its log, `__FILE__`, line numbers (-lineinfo, -G). An #include of that very name
  /// includes the source itself.
  std::string file_name = "kernel.cu";
  /// Headers in memory: the name as #include spells it, and the text.
  std::map<std::string, std::string> headers{};
  /// Searched in this order, after the headers in memory, before the toolkit's. A
  /// relative path is resolved against the working directory at the first get().
  std::vector<std::filesystem::path> include_dirs{};
  /// "NAME" or "NAME=VALUE".
  std::vector<std::string> defines{};
  /// More NVRTC options, one per string: "--maxrregcount=64". What -rdc=true, -dc or
  /// -dlto make is linked, since only then it can be loaded: see from_sources(). Those
  /// about precompiled headers (--pch) are only a wish for one. Errors: options that
  /// Kiln sets itself (the architecture: see `target`), options whose output is no
  /// kernel image (--optix-ir), and options that write or read other files.
  std::vector<std::string> options{};
  /// C++ expressions that name kernels, "scale<float>", or variables, "&ns::table": see
  /// Kernel::entry() and global(). An extern "C" kernel needs none.
  std::vector<std::string> name_expressions{};
  /// "compute_80": PTX, which the driver compiles when it loads it, on a device of 8.0
  /// or later. "sm_80", "8.0": a cubin for that architecture. "": what the device runs
  /// best, a cubin for exactly its own.
  std::string target{};
  /// True: the answer is what NVRTC itself makes of `source`, `headers`, `options`,
  /// `name_expressions` and `file_name`, and Kiln adds nothing. `options` are all those
  /// of nvrtcCompileProgram, -I, -D and -dlto too, and the architecture's, unless it is
  /// that of the device, or `target` is "default": NVRTC's own. `file_name` is given to
  /// NVRTC whole. `include_dirs` and `defines` must be empty, and nothing is linked.
  /// Errors: options that Kiln does not know, and those whose result is no cubin, PTX
  /// or LTO-IR or that are about other files.
  bool as_nvrtc = false;
  /// Of `as_nvrtc`: where relative paths are below. "": the working directory at the
  /// first get().
  std::filesystem::path working_dir{};
  /// Of `as_nvrtc`: the NVRTC, whatever is set, as a manifest of KILN_RECORD has it.
  /// "": the one that is chosen for all requests.
  std::string toolchain{};
};

/// What is linked with the sources of a request, and how.
struct LinkOptions {
  /// Cubins, PTX, LTO-IR, fat binaries, and host objects and archives with device code,
  /// in this order after the sources. Read at the first get().
  std::vector<std::filesystem::path> files{};
  /// Options of nvJitLink, one per string: "-Xptxas=-O1". Those of the architecture
  /// and, where a source is compiled with -dlto, "-lto" are Kiln's.
  std::vector<std::string> options{};
};

/// A request for a kernel. Immutable; copies are cheap and share its state. Reuse one
/// object for calls that repeat: its second get() is the fastest. Only assign to or
/// destroy a moved-from Request. The constructors check nothing: Service::get() reports
/// errors. The first get() reads the headers on disk; make a new Request to see later
/// changes. Thread safety: any number of threads may use one.
class KILN_EXPORT Request {
 public:
  /// A kernel of a template, which `kiln templates` lists. Implicit, for calls such
  /// as `service.get({"scaled_softmax_fwd", {{"dtype", "bf16"}}}, device)`.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Request(std::string name, Parameters params = {});

  /// A module with one or more kernels, from CUDA C++ source.
  [[nodiscard]] static Request from_source(SourceOptions options);

  /// A module linked from several sources: each is compiled by itself, as relocatable
  /// device code, or to LTO-IR if its options have -dlto. nvJitLink makes one cubin of
  /// them and of `link`; libcudadevrt.a is linked where device code starts kernels. The
  /// first source's `target` counts, and its file name is the request's. Needs
  /// libnvJitLink beside NVRTC, from a CUDA toolkit or NVIDIA's wheel. With one source
  /// that is not relocatable and an empty `link`, the same as from_source().
  [[nodiscard]] static Request from_sources(std::vector<SourceOptions> sources,
                                            LinkOptions link = {});

  [[nodiscard]] bool is_template() const;
  /// The template's name, or the file name of a source.
  [[nodiscard]] const std::string& name() const;
  /// As given; empty for a source.
  [[nodiscard]] const Parameters& parameters() const;
  /// As given, of several the first; default values for a template.
  [[nodiscard]] const SourceOptions& source() const;
  /// As given, in order; none for a template.
  [[nodiscard]] const std::vector<SourceOptions>& sources() const;
  [[nodiscard]] const LinkOptions& link() const;

 private:
  friend struct RequestParts;
  struct KILN_HIDDEN Content;
  explicit Request(std::shared_ptr<const Content> content);

  std::shared_ptr<const Content> content_;  // never null
};

}  // namespace kiln
