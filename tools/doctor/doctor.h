// The checks of `kiln doctor`: what is found on this machine, a verdict on each, and a
// remedy if something is wrong.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "build/build_service.h"
#include "remote/transfer.h"
#include "tools/context.h"
#include "tools/doctor/lock_probe.h"
#include "tools/option_set.h"

namespace kiln::tools {

enum class CheckVerdict { kOk, kWarn, kFail };

/// "ok", "warn", "fail".
[[nodiscard]] std::string_view to_string(CheckVerdict verdict);

struct Check {
  std::string name;
  CheckVerdict verdict = CheckVerdict::kOk;
  std::string detail;
  std::string remedy{};  // empty where there is nothing to do
};

/// The cache root and its file system, as far as they are known.
struct CacheFacts {
  std::string root;
  std::string mode;  // "read-write", "read-only", "absent" (no cache yet), "off"
  std::optional<uid_t> owner;
  std::string permissions;  // "0700", or empty
  std::string file_system;  // "ext4", or empty
  std::optional<bool> is_network;
  std::optional<std::uint64_t> free_bytes;
  std::optional<std::uint64_t> free_inodes;  // nullopt: not counted
  std::string lock_folder;                   // empty: there is none
  std::optional<LockAnswer> locks;           // nullopt: no lock is taken
  bool has_index = false;
  std::optional<cache::Totals> totals;
  std::uint64_t limit_bytes = 0;
};

/// A server of a remote cache, and how long it takes.
struct RemoteFacts {
  std::string url;
  std::string mode;          // "r", "rw"
  std::string proxy;         // its URL, without a user; empty: none
  std::uint32_t status = 0;  // of a GET; 0: no answer
  remote::TransferTimes times{};
  std::optional<std::chrono::microseconds> put{};  // nullopt: it gets none, or failed
  std::optional<std::chrono::seconds> clock_offset{};  // how far its clock is ahead
};

/// A setting as it is in force.
struct SettingFacts {
  std::string name;      // "cache_dir"
  std::string variable;  // "KILN_CACHE_DIR"
  std::string value;     // the text; of a default its description
  std::string origin;    // "environment", "--cache-dir" or kDefaultOrigin
};
inline constexpr std::string_view kDefaultOrigin = "default";

struct Diagnosis {
  void add(Check check) { checks.push_back(std::move(check)); }

  std::vector<Check> checks;
  std::vector<Device> devices;
  std::vector<device::Toolchain> toolchains;
  CacheFacts cache;
  std::vector<RemoteFacts> remotes;
  std::vector<SettingFacts> settings;
  LockProbe lock_probe;  // valid if cache.locks has a value
};

/// Runs every check; a failure becomes a check, never an error. The lock probe and the
/// trial compile have time limits.
[[nodiscard]] Diagnosis diagnose(Context& context, BuildService& service);

// Its parts, in the order of the report.
void check_driver(BuildService& service, Diagnosis& diagnosis);
void check_toolchains(BuildService& service, Diagnosis& diagnosis);
void check_compile(Context& context, BuildService& service, Diagnosis& diagnosis);
void check_cudnn(Context& context, BuildService& service, Diagnosis& diagnosis);
/// Of the active environment of Python: does the device code of its libraries run here?
/// Looks at them for 2 s.
void check_python(const Context& context, Diagnosis& diagnosis);
/// Uses the result of probe_lock_folder().
void check_cache(BuildService& service, Diagnosis& diagnosis);
/// Asks each server for an object that nobody has; one that may be written gets a small
/// object, always the same, and is asked for it.
void check_remotes(const Context& context, Diagnosis& diagnosis);

/// `given`: the options of the command line. Warns of a variable KILN_... that is
/// unknown.
void check_settings(const std::vector<SettingOption>& given, Diagnosis& diagnosis);

/// Call before anything that takes a lock: a build takes a slot, and the index and the
/// counters have locks of their own. If a lock call hangs, no lock is taken.
void probe_lock_folder(BuildService& service, Diagnosis& diagnosis);
/// If a lock call hangs: the check that replaces one that would take a lock.
[[nodiscard]] std::optional<Check> skipped_check(const std::string& name,
                                                 const Diagnosis& diagnosis);

/// `{"ok","kiln","checks","devices","toolchains","cache","remotes",
/// "settings"}`.
[[nodiscard]] nlohmann::ordered_json diagnosis_json(const Diagnosis& diagnosis);

/// One check for each thing compared with another node's `doctor --json`: driver,
/// toolchains, devices, the cache root, Kiln itself. Errors: kNotFound,
/// kInvalidArgument.
[[nodiscard]] Result<std::vector<Check>> compare_with(
    const nlohmann::ordered_json& here, const std::string& path);

/// Runs the program, whose output goes to stderr.
void check_program(const std::vector<std::string>& command, Diagnosis& diagnosis);

}  // namespace kiln::tools
