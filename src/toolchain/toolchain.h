// Finds every NVRTC on the machine and chooses one. An NVRTC is identified by its ELF
// build ids, read from its files without loading them; only a worker ever loads one.
// Files under `<cache root>/toolchains`: toolchain_files.h.

#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/cuda_version.h"
#include "device/target.h"
#include "kiln/result.h"
#include "util/library_search.h"
#include "util/own_path.h"

namespace kiln::device {

/// ELF build ids, lower-case hex. Equal ids compile alike, wherever they are installed.
struct ToolchainId {
  std::string nvrtc;
  std::string builtins;
  friend bool operator==(const ToolchainId&, const ToolchainId&) = default;
};

/// "<nvrtc's>+<builtins'>".
[[nodiscard]] std::string to_string(const ToolchainId& id);

/// What of a linker is in a key.
struct LinkerId {
  std::string nvjitlink;       // its ELF build id
  std::string device_runtime;  // SHA-256 of libcudadevrt.a; "" if there is none
  friend bool operator==(const LinkerId&, const LinkerId&) = default;
};

struct Toolchain {
  ToolchainId id;
  NvrtcFacts facts;
  std::filesystem::path nvrtc;     // absolute, resolved; empty: not installed here
  std::filesystem::path found_at;  // the link that led there, or the same
  std::filesystem::path builtins;  // beside it
  /// The header folders of its toolkit, in search order: include and include/cccl, or
  /// two folders side by side. Empty if the toolkit has no headers.
  std::vector<std::filesystem::path> include_roots;
  std::optional<LinkerId> linker{};  // of a recorded one, if it linked anything
  std::string found_in;
  bool is_explicit = false;  // a setting names it, which `found_in` says

  /// "nvrtc-13.0-65be0db3".
  [[nodiscard]] std::string name() const;
  [[nodiscard]] bool installed() const { return !nvrtc.empty(); }
  friend bool operator==(const Toolchain&, const Toolchain&) = default;
};

/// Asks a worker for the version and the architectures of the NVRTC in these two files.
using AskNvrtc = std::function<Result<NvrtcFacts>(
    const std::filesystem::path& nvrtc, const std::filesystem::path& builtins)>;

struct ToolchainSearch {
  LibraryPlaces places;
  std::filesystem::path explicit_nvrtc;      // "" for none
  std::string_view nvrtc_by = "KILN_NVRTC";  // the setting that named it
  OwnFolder folder;  // `<cache root>/toolchains`; empty: no hints
  OwnFolder links;   // for packaged_headers(), where workers can read
  AskNvrtc ask;      // called only if `folder` has no hint for the NVRTC
};

/// An NVRTC that was found but cannot be used, for `doctor`.
struct UnusableNvrtc {
  std::filesystem::path path;
  std::string found_in;
  Error error;
};

struct FoundToolchains {
  std::vector<Toolchain> usable;  // in the order of the search
  std::vector<UnusableNvrtc> unusable;
};

/// Finds every NVRTC on this machine. Reads hints, and writes missing ones if it can.
/// Errors: kUnavailable, if `explicit_nvrtc` is missing or cannot be used, or if
/// nothing can be searched because this process has too many open files; the
/// error of `ask`, if the question was cancelled or its worker ended from outside.
[[nodiscard]] Result<FoundToolchains> discover_toolchains(
    const ToolchainSearch& search);

/// The toolchain of one NVRTC, absolute and resolved, without the headers of its
/// toolkit. Of `search` the places are not looked at. Errors: kUnavailable; as `ask`.
[[nodiscard]] Result<Toolchain> describe_toolchain(const std::filesystem::path& nvrtc,
                                                   const ToolchainSearch& search);

/// "13.0 <nvrtc's id>+<builtins' id> <path>": a toolchain for another process.
[[nodiscard]] std::string to_named(const Toolchain& toolchain);
/// Has version, id and path alone. Errors: kInvalidArgument.
[[nodiscard]] Result<Toolchain> parse_named(std::string_view text);
/// kUnavailable: it is not on this machine, and what to install.
[[nodiscard]] Error missing_named(const Toolchain& wanted);

struct ToolchainCriteria {
  std::string wanted = {};                        // "" for none
  std::string_view wanted_by = "KILN_TOOLCHAIN";  // the setting that named it
  /// In this cache root, the newest first, and in seeds. The first counts.
  std::vector<Toolchain> recorded = {};
  std::optional<CudaVersion> driver = {};  // of this machine; none: it has no driver
  /// `driver` is not that of this machine but of a job's: what it does not take is not
  /// chosen.
  bool only_for_driver = false;
  std::optional<BuildFor> build_for = {};  // none: any
};

struct ToolchainChoice {
  Toolchain toolchain;  // not installed(): hits work, a miss is missing_nvrtc()
  std::string reason;   // "the last warm recorded it", for `doctor` and `why`
  std::string warning;  // to be logged once; "" for none
};

/// True if `wanted` means it: "13.0", its name, or at least 8 digits of its build id.
[[nodiscard]] bool matches(const Toolchain& toolchain, std::string_view wanted);

/// Takes the first that exists: the explicit one; `wanted` ("13.0", a name as printed,
/// or at least 8 digits of a build id); among those that support `build_for` the
/// recorded one, else the newest that the driver accepts, else the newest. If no
/// installed one supports it, the first recorded one that does. The warning says that
/// the choice is not the recorded one, or that the driver will not accept its output,
/// which is an error under `only_for_driver`, with the wheel to install. Errors:
/// kUnavailable (nothing found; unknown `wanted`, with the known ones; no NVRTC found
/// supports it, with one that does); kInvalidArgument (no NVRTC ever did).
[[nodiscard]] Result<ToolchainChoice> choose_toolchain(
    std::span<const Toolchain> found, const ToolchainCriteria& criteria);

/// The error of a miss if `recorded` is not installed: kUnavailable, what to install.
[[nodiscard]] Error missing_nvrtc(const Toolchain& recorded);

}  // namespace kiln::device
