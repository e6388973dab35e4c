#include "build/shared_failure.h"

#include <fmt/format.h>

#include <string>
#include <tuple>

#include "codec/field_decoder.h"
#include "codec/fields.h"
#include "key/memo_file.h"
#include "util/units.h"

namespace kiln {
namespace {

// Whoever waits reads a file within a second.
constexpr key::MemosKept kKept{.newest = 16, .age = std::chrono::minutes(1)};

/// Identifies one holding of a lock.
std::string to_text(const cache::OwnerRecord& builder) {
  return std::to_string(builder.pid) + " " + std::to_string(builder.started.count());
}

bool is_shared(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kCompileFailed:
    case ErrorCode::kWorkerCrashed:
    case ErrorCode::kTimeout:
    case ErrorCode::kResourceLimit:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string SharedFailures::conditions(
    ErrorCode code, std::optional<std::chrono::milliseconds> time_limit) const {
  const bool is_diagnosis =
      code == ErrorCode::kInvalidArgument || code == ErrorCode::kCompileFailed;
  return is_diagnosis
             ? conditions_.environment
             : fmt::format("{} {} {}",
                           time_limit.value_or(conditions_.time_limit).count(),
                           conditions_.memory_limit_bytes, conditions_.environment);
}

void SharedFailures::leave(const Digest& key, const cache::OwnerRecord& builder,
                           const Error& error,
                           std::optional<std::chrono::milliseconds> time_limit) const {
  const auto& [code, message, from_outside] = error;
  std::ignore = from_outside;  // of a build that was tried twice it says nothing
  if (!is_shared(code))
    return;
  Fields fields;
  fields.add("builder", to_text(builder));
  fields.add("conditions", conditions(code, time_limit));
  add_number(fields, "code", static_cast<unsigned>(code));
  fields.add("message", message);
  std::ignore = key::write_memo(folder_, key.hex(), fields.encode(), kKept);
}

std::optional<Error> SharedFailures::find(
    const Digest& key, const cache::OwnerRecord& builder,
    std::optional<std::chrono::milliseconds> time_limit) const {
  const auto bytes = key::read_memo(folder_, key.hex());
  const auto fields = bytes ? Fields::decode(*bytes) : Fields();
  if (fields && fields->find("builder") == to_text(builder)) {
    FieldDecoder decoder(*fields, "a failed build");
    Error error{};
    auto& [code, message, from_outside] = error;
    std::ignore = from_outside;
    code = decoder.one_of("code", ErrorCode::kDevice);
    message = decoder.text("message");
    auto found = decoder.finish(error);
    if (found && is_shared(code) &&
        fields->find("conditions") == conditions(code, time_limit))
      return *std::move(found);
  }
  if (!builder.timed_out ||
      builder.build_limit != time_limit.value_or(conditions_.time_limit))
    return std::nullopt;
  return Error{ErrorCode::kTimeout,
               fmt::format("the build, in process {}, was over its limit of {}; the "
                           "error of that process names the phase and the reproduction",
                           builder.pid, format_duration(builder.build_limit))};
}

}  // namespace kiln
