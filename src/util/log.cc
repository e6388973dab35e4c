#include "util/log.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "util/file_size_limit.h"
#include "util/fork_mutex.h"
#include "util/mutex.h"
#include "util/try.h"

namespace kiln {
namespace {

using Writer = std::function<void(LogLevel, const std::string&)>;

/// Never destroyed. A fork waits for `state`, which is never locked while something is
/// written: stderr may be a pipe that nobody reads. `output` is replaced in a child,
/// where the thread that had locked it does not exist.
struct Mutexes {
  Mutex state;
  std::atomic<Mutex*> output = new Mutex;
};

Mutexes& mutexes() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): has mutexes
  static auto* const instance = new Mutexes;
  return *instance;
}

Mutex& state_mutex() {
  return mutexes().state;
}

/// stderr, or the writer that log_to() was given, with mutexes that no forked child
/// finds locked by a thread of its parent, as it could find spdlog's own.
class ForkSafeSink final : public spdlog::sinks::sink {
 public:
  ForkSafeSink() {
    hold_over_forks<state_mutex>();
    // It fails only if there is no memory; then a child may block for ever.
    std::ignore =
        ::pthread_atfork(nullptr, nullptr, [] { mutexes().output = new Mutex; });
  }

  void log(const spdlog::details::log_msg& message) override {
    std::shared_ptr<const Writer> writer;
    {
      const MutexLock lock(state_mutex());
      writer = writer_;
    }
    if (writer == nullptr) {
      const MutexLock lock(*mutexes().output);
      without_file_size_signal([&] { stderr_.log(message); });  // it may be a file
      return;
    }
    // Called without a mutex: it may wait for a lock of the host, whose holder logs.
    const LogLevel level = message.level < spdlog::level::info    ? LogLevel::kDebug
                           : message.level == spdlog::level::info ? LogLevel::kInfo
                                                                  : LogLevel::kWarning;
    (*writer)(level, std::string(message.payload.data(), message.payload.size()));
  }
  void write_to(std::shared_ptr<const Writer> writer) {
    const MutexLock lock(state_mutex());
    writer_.swap(writer);
  }
  [[nodiscard]] bool has_writer() const {
    const MutexLock lock(state_mutex());
    return writer_ != nullptr;
  }
  void flush() override {
    const MutexLock lock(*mutexes().output);
    stderr_.flush();
  }
  void set_pattern(const std::string& pattern) override {
    const MutexLock lock(*mutexes().output);
    stderr_.set_pattern(pattern);
  }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    const MutexLock lock(*mutexes().output);
    stderr_.set_formatter(std::move(formatter));
  }

 private:
  spdlog::sinks::stderr_color_sink_st stderr_;
  std::shared_ptr<const Writer> writer_;  // null: stderr
};

/// "kiln", on stderr. Thread-safe.
spdlog::logger& logger() {
  // Never destroyed. NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const instance = [] {
    auto sink = std::make_shared<ForkSafeSink>();
    auto* created = new spdlog::logger("kiln", std::move(sink));
    created->set_pattern("%n: %^%l%$: %v");
    created->set_level(spdlog::level::warn);
    return created;
  }();
  return *instance;
}

// Created when Kiln is loaded, so that no fork happens meanwhile.
[[maybe_unused]] const bool kMadeEarly = [] {
  try {
    std::ignore = logger();
    return true;
  } catch (const std::exception&) {
    return false;  // out of memory; the first line tries again
  }
}();

spdlog::level::level_enum at_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      break;
  }
  return spdlog::level::warn;
}

}  // namespace

void log_to(Writer writer) {
  static_cast<ForkSafeSink&>(*logger().sinks().front())
      .write_to(writer ? std::make_shared<const Writer>(std::move(writer)) : nullptr);
}

bool has_log_writer() noexcept {
  try {
    return static_cast<ForkSafeSink&>(*logger().sinks().front()).has_writer();
  } catch (const std::exception&) {
    return false;  // out of memory; there is no logger yet
  }
}

bool is_logged(LogLevel level) noexcept {
  try {
    return logger().should_log(at_level(level));
  } catch (const std::exception&) {
    return false;  // out of memory
  }
}

void log(LogLevel level, std::initializer_list<std::string_view> parts) noexcept {
  try {
    const auto at = at_level(level);
    if (!logger().should_log(at))
      return;
    std::string line;
    for (const std::string_view part : parts) line.append(part);
    logger().log(at, spdlog::string_view_t(line));
  } catch (const std::exception&) {
    return;  // out of memory; a lost line is no failure
  }
}

Result<void> set_log_level(std::string_view level) {
  constexpr std::array kLevels{"trace", "debug", "info", "warning", "error", "off"};
  if (std::find(kLevels.begin(), kLevels.end(), level) == kLevels.end()) {
    return refuse("unknown log level '{}'; known are {}", level,
                  fmt::join(kLevels, ", "));
  }
  logger().set_level(spdlog::level::from_str(std::string(level)));
  return {};
}

}  // namespace kiln
