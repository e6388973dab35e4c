#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "c/handles.h"
#include "kiln/version.h"

namespace kiln::c {
namespace {

/// Needs no memory. Never freed.
kiln_error* out_of_memory() noexcept {
  static kiln_error error{
      KILN_RESOURCE_LIMIT, {ErrorCode::kResourceLimit, "out of memory"}, 13};
  return &error;
}

/// The offset of the compiler's log: after the first line of a compile failure; else
/// the end of the message.
std::size_t log_begin(const Error& error) {
  const std::size_t line = error.message.find('\n');
  return error.code != ErrorCode::kCompileFailed || line == std::string::npos
             ? error.message.size()
             : line + 1;
}

}  // namespace

std::string as_utf8(std::string text) {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::ranges::all_of(text, is_ascii))
    return text;
  using nlohmann::json;
  return json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace))
      .get<std::string>();
}

kiln_result error_of(const Error& error, bool is_forked) noexcept {
  try {
    // In a forked child these codes mean that the driver, or what needs it, is
    // unusable.
    const bool is_of_fork = is_forked && (error.code == ErrorCode::kUnavailable ||
                                          error.code == ErrorCode::kDevice);
    Error copy{error.code, as_utf8(error.message)};
    const std::size_t log = log_begin(copy);
    return new kiln_error{is_of_fork ? KILN_FORKED : code_of(error.code),
                          std::move(copy), log};
  } catch (const std::exception&) {
    return out_of_memory();
  }
}

}  // namespace kiln::c

int kiln_error_code(const kiln_error* error) {
  return error == nullptr ? 0 : error->code;
}
const char* kiln_error_message(const kiln_error* error) {
  return error == nullptr ? "" : error->error.message.c_str();
}
const char* kiln_error_log(const kiln_error* error) {
  return error == nullptr ? "" : error->error.message.c_str() + error->log_begin;
}
kiln_result kiln_error_new(int code, const char* message) {
  const auto known = code >= KILN_INVALID_ARGUMENT && code < KILN_FORKED
                         ? static_cast<kiln::ErrorCode>(code - KILN_INVALID_ARGUMENT)
                         : kiln::ErrorCode::kInvalidArgument;
  return kiln::c::answer([&]() -> kiln::Result<void> {
    return kiln::fail(known, message == nullptr ? "" : message);
  });
}
void kiln_error_free(kiln_error* error) {
  if (error != kiln::c::out_of_memory())
    delete error;
}

const char* kiln_version(void) {
  return kiln::version();
}
