#include "build/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/auxv.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <limits>
#include <type_traits>

#include "cache/seed_place.h"
#include "util/field_count.h"
#include "util/text.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln {
namespace {

// ---- The kinds

Result<std::string> text_of(const std::string& text) {
  return text;
}

Result<std::filesystem::path> path_of(const std::string& text) {
  return std::filesystem::path(text);
}

Result<std::vector<std::filesystem::path>> paths_of(const std::string& text) {
  const auto parts = parts_of(text, ":");
  return std::vector<std::filesystem::path>(parts.begin(), parts.end());
}

/// Splits names at commas and blanks.
Result<std::vector<std::string>> split_names(const std::string& text) {
  const auto parts = parts_of(text, ", \t");
  return std::vector<std::string>(parts.begin(), parts.end());
}

Result<bool> parse_switch(const std::string& text) {
  constexpr std::array<std::string_view, 4> kOn{"1", "true", "on", "yes"};
  constexpr std::array<std::string_view, 4> kOff{"0", "false", "off", "no"};
  const bool is_on = std::ranges::find(kOn, text) != kOn.end();
  if (is_on || std::ranges::find(kOff, text) != kOff.end())
    return is_on;
  return refuse("'{}' is neither on (1) nor off (0)", text);
}

static_assert(std::is_same_v<uid_t, std::uint32_t> && std::is_same_v<gid_t, uid_t>);
Result<std::vector<uid_t>> parse_ids(const std::string& text) {
  std::vector<uid_t> ids;
  for (const std::string_view part : parts_of(text, ","))
    ids.push_back(static_cast<uid_t>(
        KILN_TRY(parse_number(part, {0, std::numeric_limits<uid_t>::max()}))));
  return ids;
}

Result<std::uint64_t> parse_memory(const std::string& text) {
  const std::uint64_t bytes = KILN_TRY(parse_size(text));
  if (bytes < kLeastWorkerMemory)
    return refuse("'{}' is too little for a compiler; give 64M or more", text);
  return bytes;
}

Result<unsigned> parse_jobs(const std::string& text) {
  return static_cast<unsigned>(KILN_TRY(parse_number(text, {1, kMostJobs})));
}

Result<AttentionSetting> parse_attention(const std::string& text) {
  constexpr std::array<std::string_view, 3> kWritten{"best", "cudnn", "kiln"};
  if (const auto at = std::ranges::find(kWritten, text); at != kWritten.end())
    return static_cast<AttentionSetting>(at - kWritten.begin());
  return refuse("'{}' is none of best, cudnn and kiln", text);
}

// ---- The rows

template <auto Member>
auto& of_remote(Config& config) {
  return config.remote.*Member;
}

/// Reads with `Parse` what goes from the member `From` of Options to `To` of a Config:
/// each a pointer to a member, or a function that gives a reference.
template <auto From, auto Parse, auto To, auto By = nullptr>
constexpr Setting setting(const char* option, const char* variable, SettingKind kind,
                          const char* meaning, const char* fallback) {
  return {.option = option,
          .variable = variable,
          .kind = kind,
          .meaning = meaning,
          .fallback = fallback,
          .read = [](const std::string& text, Options& to) -> Result<void> {
            to.*From = KILN_TRY(Parse(text));
            return {};
          },
          .set =
              [](const Options& from, SetBy by, Config& to) {
                if (!(from.*From))
                  return;
                std::invoke(To, to) = *(from.*From);
                if constexpr (!std::is_null_pointer_v<decltype(By)>)
                  std::invoke(By, to) = by;
              }};
}

constexpr std::array kSettings{
    setting<&Options::cache_dir, path_of, &Config::cache_dir, &Config::cache_dir_by>(
        "Options::cache_dir", "KILN_CACHE_DIR", SettingKind::kPath,
        "Root of the cache.", "$XDG_CACHE_HOME/kiln, then ~/.cache/kiln"),
    setting<&Options::cache_limit_bytes, parse_size, &Config::cache_limit_bytes>(
        "Options::cache_limit_bytes", "KILN_CACHE_SIZE", SettingKind::kSize,
        "Limit of the cache, as 500M; the objects that were not used for longest are "
        "removed.",
        "10GiB"),
    setting<&Options::precompiled_limit_bytes, parse_size,
            &Config::precompiled_limit_bytes>(
        "Options::precompiled_limit_bytes", "KILN_PCH_SIZE", SettingKind::kSize,
        "Limit of the precompiled headers beside the objects; 0: none are made or "
        "used.",
        "2GiB, but at most a fifth of KILN_CACHE_SIZE"),
    setting<&Options::counters_dir, path_of, &Config::counters_dir>(
        "Options::counters_dir", "KILN_COUNTERS_DIR", SettingKind::kPath,
        "Folder of the node for the counts of a cache that is read-only or on a "
        "network file system, in a folder of each user.",
        "/var/tmp"),
    setting<&Options::trusted_uids, parse_ids, &Config::trusted_uids>(
        "Options::trusted_uids", "KILN_TRUSTED_UIDS", SettingKind::kNumbers,
        "User ids, with commas, whose objects are trusted like your own: a cache that "
        "a service account fills.",
        ""),
    setting<&Options::trusted_gids, parse_ids, &Config::trusted_gids>(
        "Options::trusted_gids", "KILN_TRUSTED_GIDS", SettingKind::kNumbers,
        "Group ids, with commas, whose members may write the folders on the way to "
        "the cache.",
        ""),
    setting<&Options::seeds, paths_of, &Config::seeds, &Config::seeds_by>(
        "Options::seeds", "KILN_SEED", SettingKind::kPaths,
        "Packs and cache roots, with colons, that are read where the cache has no "
        "object; a pack may have options: /a.kpack;signed=1;min_serial=7.",
        ""),
    setting<&Options::remote, text_of, of_remote<&RemoteSettings::servers>,
            of_remote<&RemoteSettings::servers_by>>(
        "Options::remote", "KILN_REMOTE", SettingKind::kText,
        "Remote caches, with spaces, in the order in which they are asked where "
        "neither the cache nor a seed has an object; each may have options: "
        "https://c/kiln;mode=rw;unsigned=1, layout=bazel, region=us-east-1, "
        "proxy=http://p:3128.",
        ""),
    setting<&Options::remote_mode, text_of, of_remote<&RemoteSettings::mode>,
            of_remote<&RemoteSettings::mode_by>>(
        "Options::remote_mode", "KILN_REMOTE_MODE", SettingKind::kText,
        "Whether remote caches are read, and get the objects built here: off, r or rw.",
        "r"),
    setting<&Options::remote_keys, path_of, &Config::keys>(
        "Options::remote_keys", "KILN_REMOTE_KEYS", SettingKind::kPath,
        "File of public keys: a key of the file must have signed the objects of a "
        "remote cache, a pack that is unpacked, and a seed that has signatures.",
        ""),
    setting<&Options::remote_sign, path_of, &Config::sign>(
        "Options::remote_sign", "KILN_REMOTE_SIGN", SettingKind::kPath,
        "File of the private key that kiln pack and uploads sign with.", ""),
    setting<&Options::remote_auth, path_of, of_remote<&RemoteSettings::auth>>(
        "Options::remote_auth", "KILN_REMOTE_AUTH", SettingKind::kPath,
        "File that no other user can read, as of mode 0600, with 'bearer TOKEN', "
        "'basic "
        "USER:PASSWORD', 'aws' or 'command PROGRAM', or such a line behind the URL of "
        "each server.",
        ""),
    setting<&Options::remote_ca, path_of, of_remote<&RemoteSettings::ca>>(
        "Options::remote_ca", "KILN_REMOTE_CA", SettingKind::kPath,
        "File of the certificates that https servers are checked by.", "libcurl's"),
    setting<&Options::remote_certificate, path_of,
            of_remote<&RemoteSettings::certificate>>(
        "Options::remote_certificate", "KILN_REMOTE_CERT", SettingKind::kPath,
        "File with the client's certificate and its key.", ""),
    setting<&Options::remote_wait, parse_duration, of_remote<&RemoteSettings::wait>>(
        "Options::remote_wait", "KILN_REMOTE_WAIT", SettingKind::kDuration,
        "How long a request to a remote cache may take before the build starts "
        "beside it: 2, which is seconds, or 100ms.",
        "250ms"),
    setting<&Options::compile_timeout, parse_time_limit, &Config::compile_timeout>(
        "Options::compile_timeout", "KILN_COMPILE_TIMEOUT", SettingKind::kDuration,
        "Time limit of one build: 90, which is seconds, or 5m.", "5m"),
    setting<&Options::worker_memory_bytes, parse_memory, &Config::worker_memory_bytes>(
        "Options::worker_memory_bytes", "KILN_WORKER_MEMORY", SettingKind::kSize,
        "Limit of the resident memory of one build, as 2GiB.", "4GiB"),
    setting<&Options::jobs, parse_jobs, &Config::jobs>(
        "Options::jobs", "KILN_JOBS", SettingKind::kNumber,
        "Builds at a time; fewer run while there is no memory for so many.",
        "the usable cores"),
    setting<&Options::no_jit, parse_switch, &Config::no_jit, &Config::no_jit_by>(
        "Options::no_jit", "KILN_NO_JIT", SettingKind::kSwitch,
        "1: a miss is an error and builds nothing.", "0"),
    setting<&Options::nvrtc, path_of, &Config::nvrtc, &Config::nvrtc_by>(
        "Options::nvrtc", "KILN_NVRTC", SettingKind::kPath, "The libnvrtc to use.",
        "the newest that fits"),
    setting<&Options::toolchain, text_of, &Config::toolchain, &Config::toolchain_by>(
        "Options::toolchain", "KILN_TOOLCHAIN", SettingKind::kText,
        "The NVRTC to use of those found: 13.0, or 8 or more digits of a build id.",
        "the newest that fits"),
    setting<&Options::cudnn, path_of, &Config::cudnn, &Config::cudnn_by>(
        "Options::cudnn", "KILN_CUDNN", SettingKind::kPath, "The libcudnn to use.", ""),
    setting<&Options::driver, path_of, &Config::driver, &Config::driver_by>(
        "Options::driver", "KILN_DRIVER", SettingKind::kPath, "The libcuda to use.",
        ""),
    setting<&Options::worker, path_of, &Config::worker, &Config::worker_by>(
        "Options::worker", "KILN_WORKER", SettingKind::kPath,
        "The program kiln-worker to use.", "kiln-worker of this installation"),
    setting<&Options::template_dirs, paths_of, &Config::template_dirs>(
        "Options::template_dirs", "KILN_TEMPLATE_DIR", SettingKind::kPaths,
        "Folders with kernel templates, with colons, searched before the built-in "
        "templates.",
        ""),
    setting<&Options::attention, parse_attention, &Config::attention,
            &Config::attention_by>("Options::attention", "KILN_ATTENTION",
                                   SettingKind::kText,
                                   "Library that computes attention: cudnn; kiln, "
                                   "Kiln's own kernel; or best: cuDNN where cuDNN can.",
                                   "best"),
    setting<&Options::disable, split_names, &Config::disabled, &Config::disabled_by>(
        "Options::disable", "KILN_DISABLE", SettingKind::kNames,
        "Kernels that the library refuses, with commas, so that the program takes "
        "its fallback path: rope_fwd,scaled_*.",
        ""),
    setting<&Options::record, path_of, &Config::record>(
        "Options::record", "KILN_RECORD", SettingKind::kPath,
        "A manifest that gets a line for each kernel that the library is asked for; "
        "kiln warm --manifest reads it.",
        ""),
    setting<&Options::events, path_of, &Config::events, &Config::events_by>(
        "Options::events", "KILN_EVENTS", SettingKind::kPath,
        "A file that gets a JSON line for each kernel that is found, built or waited "
        "for, or a folder, in which each process writes a file of its own; kiln events "
        "reads them.",
        ""),
    setting<&Options::store_source, parse_switch, &Config::store_source>(
        "Options::store_source", "KILN_STORE_SOURCE", SettingKind::kSwitch,
        "0 keeps sources and logs of programs beneath kiln run off the disk.", "1"),
    setting<&Options::log_level, text_of, &Config::log_level>(
        "Options::log_level", "KILN_LOG", SettingKind::kText,
        "trace, debug, info, warning, error or off.", "warning"),
};

// A member of Options that is added does not compile until it has a row, or a place in
// Service, as on_event has.
constexpr std::size_t kMembersWithoutRow = 1;
static_assert(kSettings.size() + kMembersWithoutRow == field_count<Options>());

// ---- What C++ gives, which is not read

template <typename Number>
Result<void> check(std::string_view member, const std::optional<Number>& value,
                   Number least, Number most) {
  if (!value || (*value >= least && *value <= most))
    return {};
  return refuse("Options::{} is {}; {} to {} is possible", member, *value, least, most);
}

Result<void> check(const Options& options) {
  KILN_TRY(check("jobs", options.jobs, 1U, kMostJobs));
  KILN_TRY(check("worker_memory_bytes", options.worker_memory_bytes, kLeastWorkerMemory,
                 std::uint64_t{1} << 62U));
  constexpr std::chrono::milliseconds kCentury = std::chrono::hours(24 * 365 * 100);
  if (options.compile_timeout && (*options.compile_timeout <= kCentury * 0 ||
                                  *options.compile_timeout > kCentury)) {
    return refuse(
        "Options::compile_timeout is {} ms; above 0 and up to a century is possible",
        options.compile_timeout->count());
  }
  if (options.remote_wait &&
      (*options.remote_wait < kCentury * 0 || *options.remote_wait > kCentury)) {
    return refuse("Options::remote_wait is {} ms; 0 to a century is possible",
                  options.remote_wait->count());
  }
  if (options.attention && *options.attention > AttentionSetting::kKiln)
    return refuse("Options::attention is none of AttentionSetting");
  return {};
}

// ---- The environment beside the settings

/// An empty one counts as not set.
std::optional<std::string> value_of(const Environment& environment,
                                    const std::string& variable) {
  std::optional<std::string> value = environment(variable);
  if (value && value->empty())
    return std::nullopt;
  return value;
}

std::filesystem::path default_cache_dir(const Environment& environment) {
  // XDG base directory specification: a relative path is invalid and ignored.
  const std::filesystem::path xdg =
      value_of(environment, "XDG_CACHE_HOME").value_or("");
  if (xdg.is_absolute())
    return xdg / "kiln";
  if (const auto home = value_of(environment, "HOME"))
    return std::filesystem::path(*home) / ".cache" / "kiln";
  return {};
}

/// What torchrun, Slurm, and the launchers of Open MPI and MPICH set.
std::optional<std::uint32_t> find_rank(const Environment& environment) {
  for (const char* const name :
       {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    const auto text = value_of(environment, name);
    const auto rank =
        text ? parse_number(*text, {0, std::numeric_limits<std::uint32_t>::max()})
             : fail(ErrorCode::kNotFound, {});
    if (rank)
      return static_cast<std::uint32_t>(*rank);
  }
  return std::nullopt;
}

}  // namespace

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
  constexpr std::uint64_t kMost = 2ULL << 30U;  // ten times CUB's
  return config.precompiled_limit_bytes.value_or(
      std::min(kMost, config.cache_limit_bytes / 5));
}

std::string_view Setting::name() const {
  return std::string_view(option).substr(std::string_view("Options::").size());
}

Result<void> Setting::read_by(std::string_view by, const std::string& text,
                              Options& to) const {
  return about(by, read(text, to));
}

std::span<const Setting> every_setting() {
  return kSettings;
}

const Setting* find_setting(std::string_view name) {
  const auto* const found = std::ranges::find(kSettings, name, &Setting::name);
  return found == kSettings.end() ? nullptr : &*found;
}

Result<void> read_setting(std::string_view assignment, Options& to) {
  const std::size_t equals = assignment.find('=');
  const std::string_view name = assignment.substr(0, equals);
  const Setting* const found = find_setting(name);
  if (found == nullptr || equals == std::string_view::npos) {
    std::vector<std::string_view> names;
    for (const Setting& each : kSettings) names.push_back(each.name());
    return refuse(
        "'{}' is no setting: a setting is NAME=VALUE, where NAME is one of {}",
        assignment, fmt::join(names, ", "));
  }
  return found->read_by(name, std::string(assignment.substr(equals + 1)), to);
}

Result<Config> settings(const Options& options, const Environment& environment) {
  KILN_TRY(check(options));
  Config config;
  config.cache_dir = default_cache_dir(environment);
  config.runtime_dir = value_of(environment, "XDG_RUNTIME_DIR").value_or("");
  config.rank = find_rank(environment);
  config.traceparent = value_of(environment, "TRACEPARENT");
  Options variables;
  for (const Setting& setting : kSettings) {
    if (const auto value = value_of(environment, setting.variable))
      KILN_TRY(setting.read_by(setting.variable, *value, variables));
    setting.set(variables, {setting.variable}, config);
    setting.set(options, {setting.option}, config);
  }
  KILN_TRY(about(config.seeds_by.name,
                 cache::check_seeds(config.seeds, !config.keys.empty())));
  return config;
}

}  // namespace kiln
