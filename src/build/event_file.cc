#include "build/event_file.h"

#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "build/dead_mounts.h"
#include "util/log.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln {
namespace {

using nlohmann::ordered_json;

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

ordered_json or_null(std::string_view text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

}  // namespace

std::string_view first_line(std::string_view message) {
  constexpr std::size_t kMostChars = 1000;
  return message.substr(0, std::min(message.find('\n'), kMostChars));
}

Result<std::unique_ptr<EventFile>> EventFile::open(const Config& config,
                                                   LineFile::Takes takes) {
  const std::filesystem::path& path = *config.events;
  KILN_TRY(check_mount(config, config.events_by.name, path));
  std::error_code ignored;  // then it is no folder
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  const auto place =
      is_folder ? path / fmt::format("{}.{}.jsonl", host_name(), ::getpid()) : path;
  // In a folder of several users others may have put a link there.
  auto file =
      KILN_TRY(LineFile::open(place, is_folder ? LineFile::Takes::kOwnFiles : takes));
  return std::unique_ptr<EventFile>(new EventFile(std::move(file), config));
}

EventFile::EventFile(std::unique_ptr<LineFile> file, const Config& config)
    : file_(std::move(file)),
      host_(host_name()),
      rank_(config.rank),
      traceparent_(config.traceparent),
      has_messages_(config.store_source) {}

void EventFile::write(const BuildEvent& event) {
  const auto& [name, arch, outcome, tier, server, stored, took, built_in, key, device,
               nearest, reason, error] = event;
  ordered_json line = {
      {"time", format_time(std::chrono::system_clock::now())},
      {"event", "done"},
      {"name", name},
      {"arch", arch},
      {"outcome", outcome},
      {"tier", tier ? ordered_json(to_string(*tier)) : nullptr},
      {"server", or_null(server)},
      {"stored", stored},
      {"ms", took.count()},
      {"build_ms", built_in ? ordered_json(built_in->count()) : nullptr},
      {"error", nullptr},
      {"key", key != nullptr ? ordered_json(key->hex()) : nullptr},
      {"device", device ? ordered_json(*device) : nullptr},
      {"nearest", or_null(nearest)},
      {"reason", or_null(reason)},
      {"host", host_},
      {"pid", ::getpid()}};
  if (error != nullptr)
    line["error"] = {{"code", to_string(error->code)},
                     {"message", has_messages_ ? first_line(error->message)
                                               : "not written: KILN_STORE_SOURCE=0"}};
  if (rank_)
    line["rank"] = *rank_;
  if (traceparent_)
    line["traceparent"] = *traceparent_;
  auto text = line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + '\n';
  const auto written = file_->add(std::move(text));
  if (!written && !has_failed_.exchange(true))
    log(LogLevel::kWarning, {written.error().message, "; later events may be missing"});
}

}  // namespace kiln
