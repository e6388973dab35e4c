#include "build/shared_failure.h"

#include <string>
#include <tuple>

#include "codec/field_decoder.h"
#include "codec/fields.h"
#include "key/memo_file.h"
#include "util/bytes.h"

namespace kiln {
namespace {

/// The builder, as no other ownership of a lock is written.
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

bool depends_on_limits(ErrorCode code) {
  return code != ErrorCode::kInvalidArgument && code != ErrorCode::kCompileFailed;
}

}  // namespace

void SharedFailures::leave(const Digest& key, const cache::OwnerRecord& builder,
                           const Error& error) const {
  if (!is_shared(error.code))
    return;
  Fields fields;
  fields.add("builder", to_text(builder));
  add_number(fields, "time limit", conditions_.time_limit.count());
  add_number(fields, "memory limit", conditions_.memory_limit_bytes);
  fields.add("environment", conditions_.environment);
  add_number(fields, "code", static_cast<unsigned>(error.code));
  fields.add("message", error.message);
  std::ignore = key::write_memo(folder_, key.hex(), fields.encode());
}

std::optional<Error> SharedFailures::find(const Digest& key,
                                          const cache::OwnerRecord& builder) const {
  const auto bytes = key::read_memo(folder_, key.hex());
  const auto fields = bytes ? Fields::decode(*bytes) : Fields();
  if (!fields || fields->find("builder") != to_text(builder) ||
      fields->find("environment") != conditions_.environment)
    return std::nullopt;
  FieldDecoder decoder(*fields, "a failed build");
  const bool has_our_limits =
      decoder.number<std::int64_t>("time limit") == conditions_.time_limit.count() &&
      decoder.number<std::uint64_t>("memory limit") == conditions_.memory_limit_bytes;
  Error error{decoder.one_of("code", ErrorCode::kDevice), decoder.text("message")};
  const auto found = decoder.finish(std::move(error));
  if (!found || !is_shared(found->code) ||
      (depends_on_limits(found->code) && !has_our_limits))
    return std::nullopt;
  return *found;
}

}  // namespace kiln
