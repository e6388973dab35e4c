#include "build/config.h"

#include <fmt/format.h>
#include <sys/auxv.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <type_traits>

#include "util/try.h"
#include "util/units.h"

namespace kiln {
namespace {

constexpr std::array kVariables{
    EnvironmentVariable{"KILN_CACHE_DIR",
                        "Root of the cache; else $XDG_CACHE_HOME/kiln, ~/.cache/kiln."},
    EnvironmentVariable{"KILN_CACHE_SIZE",
                        "Limit of the cache, with its unit: 10GiB, 500M."},
    EnvironmentVariable{"KILN_PCH_SIZE",
                        "Limit of precompiled headers beside the cache: 2GiB, or a "
                        "fifth of KILN_CACHE_SIZE, by default; 0: none are made."},
    EnvironmentVariable{"KILN_TRUSTED_UIDS",
                        "Comma-separated user ids whose objects are trusted, too."},
    EnvironmentVariable{
        "KILN_TRUSTED_GIDS",
        "Comma-separated group ids that may write the folders on the way "
        "to the cache."},
    EnvironmentVariable{"KILN_SEED",
                        "Packs and cache roots, with colons, that are read where the "
                        "cache has no object."},
    EnvironmentVariable{"KILN_REMOTE",
                        "URLs of remote caches, with spaces, that are asked where "
                        "nothing here has an object: https://c/kiln;mode=rw."},
    EnvironmentVariable{"KILN_REMOTE_MODE",
                        "off, r (default) or rw: whether remote caches are read, and "
                        "get what is built here."},
    EnvironmentVariable{"KILN_REMOTE_KEYS",
                        "File of public keys whose signatures are trusted."},
    EnvironmentVariable{"KILN_REMOTE_SIGN",
                        "File of the private key that packs and uploads are signed "
                        "with."},
    EnvironmentVariable{"KILN_REMOTE_AUTH",
                        "File of mode 0600 with 'bearer TOKEN', 'basic USER:PASSWORD' "
                        "or 'aws'."},
    EnvironmentVariable{"KILN_REMOTE_CA",
                        "File of the certificates that https servers are checked by."},
    EnvironmentVariable{"KILN_REMOTE_CERT",
                        "File with the client's certificate and its key."},
    EnvironmentVariable{"KILN_REMOTE_WAIT",
                        "How long a request may take before the build starts beside "
                        "it: 2, which is seconds, or 100ms; 250ms by default."},
    EnvironmentVariable{"KILN_COMPILE_TIMEOUT",
                        "Time limit of one build: 90, which is seconds, or 5m; 300 by "
                        "default."},
    EnvironmentVariable{"KILN_WORKER_MEMORY",
                        "Resident memory limit of one build; 4GiB by default."},
    EnvironmentVariable{
        "KILN_JOBS", "Builds at a time, memory allowing; the usable cores by default."},
    EnvironmentVariable{"KILN_NO_JIT", "1: a miss is an error instead of a build."},
    EnvironmentVariable{"KILN_NVRTC", "Path of the libnvrtc to use."},
    EnvironmentVariable{"KILN_TOOLCHAIN",
                        "Which of the NVRTCs found: 13.0, or 8 or more digits of a "
                        "build id."},
    EnvironmentVariable{"KILN_CUDNN", "Path of the libcudnn to use."},
    EnvironmentVariable{"KILN_DRIVER", "Path of the libcuda to use."},
    EnvironmentVariable{"KILN_WORKER", "Path of the kiln-worker program."},
    EnvironmentVariable{"KILN_TEMPLATE_DIR",
                        "Folders with kernel templates, with colons, searched before "
                        "the built-in ones."},
    EnvironmentVariable{"KILN_ATTENTION",
                        "Forces the backend of attention: cudnn or kiln; by default "
                        "cuDNN where it can, else Kiln's own kernel."},
    EnvironmentVariable{"KILN_DISABLE",
                        "Kernels that the library refuses, with commas: "
                        "rope_fwd,scaled_*."},
    EnvironmentVariable{"KILN_RECORD",
                        "A file that gets a line for each kernel the library is "
                        "asked for; warm --manifest reads it."},
    EnvironmentVariable{"KILN_LOG",
                        "trace, debug, info, warning (default), error or off."},
};

constexpr std::uint64_t kMostPrecompiledBytes = 2ULL << 30U;  // ten times CUB's

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin)
      parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// Splits names at commas and blanks.
std::vector<std::string> split_names(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == ' ' || c == '\t'; }, ',');
  return split(text, ',');
}

Result<bool> parse_switch(const std::string& text) {
  constexpr std::array<std::string_view, 4> kOn{"1", "true", "on", "yes"};
  constexpr std::array<std::string_view, 4> kOff{"0", "false", "off", "no"};
  for (const std::string_view word : kOn) {
    if (text == word)
      return true;
  }
  for (const std::string_view word : kOff) {
    if (text == word)
      return false;
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is neither on (1) nor off (0)", text));
}

/// Reads variables; an error names its variable.
class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  [[nodiscard]] std::optional<std::string> text(const std::string& variable) const {
    std::optional<std::string> value = environment_(variable);
    if (value && value->empty())
      return std::nullopt;
    return value;
  }

  [[nodiscard]] std::optional<std::filesystem::path> path(
      const std::string& variable) const {
    const std::optional<std::string> value = text(variable);
    return value ? std::optional<std::filesystem::path>(*value) : std::nullopt;
  }

  /// Those between the colons.
  [[nodiscard]] std::vector<std::filesystem::path> paths(
      const std::string& variable) const {
    return split_paths(text(variable).value_or(""));
  }

  /// Overwrites `field` with what `parse` makes of the variable, if it is set.
  template <typename Field, typename Parse>
  [[nodiscard]] Result<void> read(const std::string& variable, Field& field,
                                  Parse parse) const {
    const std::optional<std::string> value = text(variable);
    if (!value)
      return {};
    auto parsed = parse(*value);
    if (!parsed) {
      return fail(parsed.error().code,
                  fmt::format("{}: {}", variable, parsed.error().message));
    }
    field = *std::move(parsed);
    return {};
  }

 private:
  const Environment& environment_;
};

std::filesystem::path find_cache_dir(const Reader& reader) {
  if (const auto directory = reader.path("KILN_CACHE_DIR"))
    return *directory;
  // XDG base directory specification: a relative path is invalid and ignored.
  const auto xdg = reader.path("XDG_CACHE_HOME");
  if (xdg && xdg->is_absolute())
    return *xdg / "kiln";
  if (const auto home = reader.path("HOME"))
    return *home / ".cache" / "kiln";
  return {};
}

static_assert(std::is_same_v<uid_t, gid_t>);
Result<std::vector<uid_t>> parse_ids(const std::string& text) {
  std::vector<uid_t> ids;
  for (const std::string& part : split(text, ','))
    ids.push_back(static_cast<uid_t>(
        KILN_TRY(parse_number(part, {0, std::numeric_limits<uid_t>::max()}))));
  return ids;
}

/// What torchrun, Slurm, and the launchers of Open MPI and MPICH set.
std::optional<std::uint32_t> find_rank(const Reader& reader) {
  for (const char* const name :
       {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    const auto text = reader.text(name);
    const auto rank =
        text ? parse_number(*text, {0, std::numeric_limits<std::uint32_t>::max()})
             : fail(ErrorCode::kNotFound, {});
    if (rank)
      return static_cast<std::uint32_t>(*rank);
  }
  return std::nullopt;
}

Result<std::uint64_t> parse_memory(const std::string& text) {
  const std::uint64_t bytes = KILN_TRY(parse_size(text));
  if (bytes < kLeastWorkerMemory)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is too little for a compiler; give 64M or more", text));
  return bytes;
}

Result<unsigned> parse_jobs(const std::string& text) {
  return static_cast<unsigned>(KILN_TRY(parse_number(text, {1, kMostJobs})));
}

}  // namespace

std::vector<std::filesystem::path> split_paths(const std::string& text) {
  const auto parts = split(text, ':');
  return {parts.begin(), parts.end()};
}

Result<AttentionSetting> parse_attention(const std::string& text) {
  if (text == "cudnn")
    return AttentionSetting::kCudnn;
  if (text == "kiln")
    return AttentionSetting::kKiln;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is neither cudnn nor kiln", text));
}

Environment process_environment() {
  if (::getauxval(AT_SECURE) != 0)
    return [](const std::string&) { return std::nullopt; };
  return [](const std::string& variable) -> std::optional<std::string> {
    // Kiln never calls setenv. A host that calls it while it opens a service races with
    // every reader of the environment.
    const char* value = std::getenv(variable.c_str());  // NOLINT(concurrency-mt-unsafe)
    if (value == nullptr)
      return std::nullopt;
    return value;
  };
}

std::uint64_t precompiled_limit(const Config& config) {
  return config.precompiled_limit_bytes.value_or(
      std::min(kMostPrecompiledBytes, config.cache_limit_bytes / 5));
}

std::span<const EnvironmentVariable> environment_reference() {
  return kVariables;
}

Result<Config> read_config(const Environment& environment) {
  const Reader reader(environment);
  Config config;
  config.cache_dir = find_cache_dir(reader);
  config.names_cache_dir = reader.path("KILN_CACHE_DIR").has_value();
  config.runtime_dir = reader.path("XDG_RUNTIME_DIR").value_or("");
  KILN_TRY(reader.read("KILN_CACHE_SIZE", config.cache_limit_bytes, parse_size));
  KILN_TRY(reader.read("KILN_PCH_SIZE", config.precompiled_limit_bytes, parse_size));
  KILN_TRY(reader.read("KILN_TRUSTED_UIDS", config.trusted_uids, parse_ids));
  KILN_TRY(reader.read("KILN_TRUSTED_GIDS", config.trusted_gids, parse_ids));
  KILN_TRY(
      reader.read("KILN_COMPILE_TIMEOUT", config.compile_timeout, parse_time_limit));
  KILN_TRY(reader.read("KILN_WORKER_MEMORY", config.worker_memory_bytes, parse_memory));
  KILN_TRY(reader.read("KILN_JOBS", config.jobs, parse_jobs));
  KILN_TRY(reader.read("KILN_NO_JIT", config.no_jit, parse_switch));
  config.nvrtc = reader.path("KILN_NVRTC");
  config.cudnn = reader.path("KILN_CUDNN");
  config.driver = reader.path("KILN_DRIVER");
  config.worker = reader.path("KILN_WORKER");
  config.toolchain = reader.text("KILN_TOOLCHAIN");
  config.template_dirs = reader.paths("KILN_TEMPLATE_DIR");
  config.seeds = reader.paths("KILN_SEED");
  config.keys = reader.path("KILN_REMOTE_KEYS").value_or("");
  config.sign = reader.path("KILN_REMOTE_SIGN").value_or("");
  config.remote.servers = reader.text("KILN_REMOTE").value_or("");
  config.remote.mode = reader.text("KILN_REMOTE_MODE").value_or(config.remote.mode);
  config.remote.auth = reader.path("KILN_REMOTE_AUTH").value_or("");
  config.remote.ca = reader.path("KILN_REMOTE_CA").value_or("");
  config.remote.certificate = reader.path("KILN_REMOTE_CERT").value_or("");
  KILN_TRY(reader.read("KILN_REMOTE_WAIT", config.remote.wait, parse_duration));
  config.rank = find_rank(reader);
  config.traceparent = reader.text("TRACEPARENT");
  KILN_TRY(reader.read("KILN_ATTENTION", config.attention, parse_attention));
  if (const auto names = reader.text("KILN_DISABLE"))
    config.disabled = split_names(*names);
  config.record = reader.path("KILN_RECORD");
  config.log_level = reader.text("KILN_LOG");
  return config;
}

}  // namespace kiln
