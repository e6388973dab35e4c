// A compile worker's job and its output. Plain values: the service fills a job from a
// request; protocol.h carries both across the socket.

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/architecture.h"
#include "kiln/result.h"
#include "util/bytes.h"
#include "util/file_stamp.h"

namespace kiln::compile {

/// The program name of a job that has none of its own.
inline constexpr std::string_view kProgramName = "kernel.cu";

/// A header that exists in memory only; `name` is what an #include spells.
struct MemoryHeader {
  std::string name;
  std::string text;
  friend bool operator==(const MemoryHeader&, const MemoryHeader&) = default;
};

/// One NVRTC: absolute paths of the library and of its builtins. The worker opens
/// exactly these two, the builtins first: a libnvrtc from a wheel does not find its
/// builtins, and LD_LIBRARY_PATH may hold others. If `builtins` is empty or cannot be
/// opened, NVRTC searches for its own. CompileOutput reports what was loaded.
struct NvrtcPaths {
  std::filesystem::path nvrtc;
  std::filesystem::path builtins;
  friend bool operator==(const NvrtcPaths&, const NvrtcPaths&) = default;
};

/// The default limits of one build.
inline constexpr std::chrono::milliseconds kDefaultTimeLimit = std::chrono::minutes(5);
inline constexpr std::uint64_t kDefaultMemoryLimit = 4ULL << 30U;  // bytes, resident

/// A precompiled header on disk. NVRTC maps it into memory and follows the pointers in
/// it, so it is used only if all of this is as it was when the file was made.
struct PrecompiledFile {
  std::filesystem::path path = {};  // absolute; empty: none
  std::uint64_t bytes = 0;
  std::string xxh3 = {};            // XXH3-128 of the bytes, lower-case hex
  std::uint64_t nvrtc_address = 0;  // at which libnvrtc was loaded
  friend bool operator==(const PrecompiledFile&, const PrecompiledFile&) = default;
};

struct CompileJob {
  /// What messages call this build, "scaled_softmax_fwd:dtype=bf16"; never reaches
  /// NVRTC.
  std::string label = {};
  std::string source = {};
  /// Given to NVRTC, which puts it into its log and into the image.
  std::string program_name = std::string(kProgramName);
  /// Where relative paths are below.
  std::filesystem::path working_directory = "/";
  /// Passed to NVRTC unchanged and in this order, --gpu-architecture included. The
  /// worker itself adds what changes no byte of the image, so that it never becomes
  /// part of a key: that NVRTC keeps no cache of its own and, unless the job is
  /// `as_nvrtc`, the options that only fill the log (log_options()).
  std::vector<std::string> options = {};
  /// NVRTC's log is the caller's: whole, and of a failure NvrtcFailure.
  bool as_nvrtc = false;
  std::vector<std::string> name_expressions = {};
  std::vector<MemoryHeader> headers = {};
  NvrtcPaths nvrtc = {};
  /// The target that `options` ask for. For a PTX target the image is PTX.
  device::Target target = {};
  /// Of a text that `source` begins with, and of these options. The worker compiles
  /// without it where it cannot be used: CompileOutput says which.
  PrecompiledFile precompiled = {};
  /// Not empty: `source` is the beginning of other sources, and this file, in the
  /// worker's scratch folder, is all that is wanted of it. The output has no image.
  std::filesystem::path make_precompiled = {};
  /// Wall clock from the request's arrival at the worker. Zero: the pool's default.
  std::chrono::milliseconds time_limit{0};
  /// Resident bytes of the worker. Zero: the pool's default.
  std::uint64_t memory_limit_bytes = 0;
  friend bool operator==(const CompileJob&, const CompileJob&) = default;
};

/// An error of an `as_nvrtc` job: its message ends with ": <result's name>\n<log>".
struct NvrtcFailure {
  std::string result;  // "NVRTC_ERROR_COMPILATION"
  std::string log;     // as NVRTC gave it
};
/// nullopt: NVRTC did not say it.
[[nodiscard]] std::optional<NvrtcFailure> nvrtc_failure(const Error& error);

struct LoweredName {
  std::string expression;  // "kernel<float>"
  std::string lowered;     // "_Z6kernelIfEvv"
  friend bool operator==(const LoweredName&, const LoweredName&) = default;
};

/// What ptxas said about one entry point.
struct ResourceUse {
  std::string entry;  // lowered name
  std::uint64_t registers = 0;
  std::uint64_t static_shared_bytes = 0;
  std::uint64_t stack_bytes = 0;  // local memory a thread, spills included
  std::uint64_t spill_store_bytes = 0;
  std::uint64_t spill_load_bytes = 0;
  friend bool operator==(const ResourceUse&, const ResourceUse&) = default;
};

/// A shared library as the dynamic loader reports it. Empty if none was loaded;
/// `build_id` is empty if the library has none.
struct LoadedLibrary {
  std::filesystem::path path;
  std::string build_id;  // lower-case hex
  friend bool operator==(const LoadedLibrary&, const LoadedLibrary&) = default;
};

/// A report is truncated at these limits.
inline constexpr std::size_t kMaxReportedFiles = 200'000;
inline constexpr std::size_t kMaxReportedBytes = std::size_t{32} << 20U;

/// The files that NVRTC or nvJitLink tried to open: absolute paths as it spells them,
/// each once, in order of first use; one that was another file at its second opening is
/// in `opened` twice. Headers in memory are not included.
struct FileReport {
  /// Readable files: no folders, no devices. Also those that NVRTC only recognised as
  /// one that it has read, by another name.
  std::vector<OpenedFile> opened;
  std::vector<std::filesystem::path> missed;  // paths at which it found no file
  bool is_whole = true;                       // false: truncated
  friend bool operator==(const FileReport&, const FileReport&) = default;
};

/// What became of CompileJob::precompiled.
enum class PrecompiledUse : std::uint8_t {
  kNone,  // the job had none
  kUsed,  // `files` lacks what was opened and missed when it was made
  // Compiled without it:
  kDamaged,
  kElsewhere,  // libnvrtc lies at another address in this process
  kRefused,    // NVRTC did not use it, or failed with it
};

struct CompileOutput {
  Bytes image;      // cubin, or PTX text without its NUL for a PTX target
  std::string ptx;  // of a cubin target, to which it adds no cost; else empty
  /// With the lines of log_options(), and shortened if it is long; but for `as_nvrtc`.
  std::string log;
  std::vector<LoweredName> lowered_names;  // in the order of the expressions
  std::vector<ResourceUse> resources;      // in the order of the log; none for PTX
  FileReport files;
  /// Looked up after the compile. Compare the build ids with the key's.
  LoadedLibrary nvrtc;
  LoadedLibrary builtins;
  std::chrono::milliseconds nvrtc_time{0};  // inside nvrtcCompileProgram
  PrecompiledUse precompiled = PrecompiledUse::kNone;
  PrecompiledFile made;  // of CompileJob::make_precompiled
  friend bool operator==(const CompileOutput&, const CompileOutput&) = default;
};

/// The answer to a DescribeRequest.
struct ToolchainDescription {
  int major = 0;
  int minor = 0;
  std::vector<device::ComputeCapability> architectures;  // ascending
  LoadedLibrary nvrtc;
  friend bool operator==(const ToolchainDescription&,
                         const ToolchainDescription&) = default;
};

/// The phase of a build. A lock's owner record and a timeout's message name it.
enum class BuildPhase : std::uint8_t {
  kQueued,     // for one of the pool's places and for a machine slot
  kStarting,   // a worker process
  kOpening,    // libnvrtc, in the worker
  kCompiling,  // in nvrtcCompileProgram
  kReading,    // results out of NVRTC and through the socket
};

/// "queued", "starting", "opening", "compiling", "reading".
[[nodiscard]] std::string_view to_string(BuildPhase phase);

/// The options that the worker appends for its own log: ptxas' resource report.
[[nodiscard]] const std::vector<std::string>& log_options();

/// With more names there is no such report: NVRTC's time for it grows with the square
/// of the number of kernels, and is as long as the compile's for some thousands.
inline constexpr std::size_t kMostNamesInLog = 500;

}  // namespace kiln::compile
