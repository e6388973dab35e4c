#include "library/service_options.h"

#include <fmt/format.h>

#include <chrono>
#include <string_view>

#include "util/try.h"

namespace kiln {
namespace {

template <typename Field, typename Value>
void set(Field& field, const std::optional<Value>& value) {
  if (value)
    field = *value;
}

template <typename Field, typename Value>
void set(Field& field, SetBy& by, const std::optional<Value>& value,
         std::string_view member) {
  if (!value)
    return;
  field = *value;
  by.name = member;
}

template <typename Number>
Result<void> check(std::string_view member, const std::optional<Number>& value,
                   Number least, Number most) {
  if (!value || (*value >= least && *value <= most))
    return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("Options::{} is {}; {} to {} is possible", member, *value,
                          least, most));
}

}  // namespace

Result<Config> settings(const Options& options, const Environment& environment) {
  KILN_TRY(check("jobs", options.jobs, 1U, kMostJobs));
  KILN_TRY(check("worker_memory_bytes", options.worker_memory_bytes, kLeastWorkerMemory,
                 std::uint64_t{1} << 62U));
  constexpr std::chrono::milliseconds kCentury = std::chrono::hours(24 * 365 * 100);
  if (options.compile_timeout && (*options.compile_timeout <= kCentury * 0 ||
                                  *options.compile_timeout > kCentury)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("Options::compile_timeout is {} ms; more than none and up to "
                    "a century is possible",
                    options.compile_timeout->count()));
  }
  if (options.remote_wait &&
      (*options.remote_wait < kCentury * 0 || *options.remote_wait > kCentury)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("Options::remote_wait is {} ms; none to a century is "
                            "possible",
                            options.remote_wait->count()));
  }
  if (options.attention && *options.attention > AttentionSetting::kKiln)
    return fail(ErrorCode::kInvalidArgument,
                "Options::attention is none of AttentionSetting");
  // An option that is added does not compile until it is set here, or in Service, as
  // on_event is.
  [[maybe_unused]] const auto& [o1, o2, o3, o4, o5, o6, o7, o8, o9, o10, o11, o12, o13,
                                o14, o15, o16, o17, o18, o19, o20, o21, o22, o23, o24,
                                o25, o26, o27, o28] = options;
  Config config = KILN_TRY(read_config(environment));
  set(config.cache_dir, options.cache_dir);
  config.names_cache_dir |= options.cache_dir.has_value();
  set(config.cache_limit_bytes, options.cache_limit_bytes);
  set(config.precompiled_limit_bytes, options.precompiled_limit_bytes);
  set(config.compile_timeout, options.compile_timeout);
  set(config.worker_memory_bytes, options.worker_memory_bytes);
  set(config.jobs, options.jobs);
  set(config.no_jit, config.no_jit_by, options.no_jit, "Options::no_jit");
  set(config.nvrtc, config.nvrtc_by, options.nvrtc, "Options::nvrtc");
  set(config.cudnn, config.cudnn_by, options.cudnn, "Options::cudnn");
  set(config.driver, config.driver_by, options.driver, "Options::driver");
  set(config.worker, config.worker_by, options.worker, "Options::worker");
  set(config.toolchain, config.toolchain_by, options.toolchain, "Options::toolchain");
  set(config.template_dirs, options.template_dirs);
  set(config.attention, config.attention_by, options.attention, "Options::attention");
  set(config.record, options.record);
  set(config.disabled, config.disabled_by, options.disable, "Options::disable");
  set(config.seeds, options.seeds);
  set(config.keys, options.remote_keys);
  set(config.sign, options.remote_sign);
  set(config.remote.servers, config.remote.servers_by, options.remote,
      "Options::remote");
  set(config.remote.mode, config.remote.mode_by, options.remote_mode,
      "Options::remote_mode");
  set(config.remote.auth, options.remote_auth);
  set(config.remote.ca, options.remote_ca);
  set(config.remote.certificate, options.remote_certificate);
  set(config.remote.wait, options.remote_wait);
  set(config.log_level, options.log_level);
  if (options.trusted_uids)
    config.trusted_uids.assign(options.trusted_uids->begin(),
                               options.trusted_uids->end());
  return config;
}

}  // namespace kiln
