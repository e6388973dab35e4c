// What the handles of kiln/c.h hold, and answer(), which every call goes through.

#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/c.h"
#include "kiln/kernel.h"
#include "kiln/result.h"
#include "kiln/service.h"
#include "util/fork_count.h"
#include "util/public_border.h"
#include "util/try.h"

// The _INIT macros leave to C what is zero, of which C++ warns.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

struct kiln_error {
  int code;
  kiln::Error error;
  std::size_t log_begin;  // in the message
};

struct kiln_service {
  kiln::Service service;
  kiln::OwnerProcess opener;
};

struct kiln_kernel {
  kiln::Kernel kernel;
  kiln::OwnerProcess opener;
};

struct kiln_cancel {
  std::stop_source source;
};

namespace kiln::c {

/// The error for the caller. `is_forked`: another process opened the handle.
[[nodiscard]] kiln_result error_of(const Error& error, bool is_forked) noexcept;

/// Runs `call`, which returns a Result<void> and may throw. NULL: it succeeded.
template <typename Call>
[[nodiscard]] kiln_result answer(const Call& call) noexcept {
  const Result<void> done = at_border(call);
  return done ? nullptr : error_of(done.error(), false);
}

/// The same for a call on a handle, which must not be NULL.
template <typename Handle, typename Call>
[[nodiscard]] kiln_result answer(const Handle* used, const Call& call) noexcept {
  const Result<void> done = at_border([&]() -> Result<void> {
    if (used == nullptr)
      return fail(ErrorCode::kInvalidArgument, "the handle is NULL");
    return call();
  });
  return done ? nullptr
              : error_of(done.error(), used != nullptr && !used->opener.is_this());
}

/// Codes of C begin at 1: 0 is no error.
[[nodiscard]] constexpr int code_of(ErrorCode code) {
  return static_cast<int>(code) + 1;
}

/// Errors: kInvalidArgument, where an argument is NULL.
[[nodiscard]] inline Result<void> given(const void* pointer, std::string_view name) {
  if (pointer != nullptr)
    return {};
  return fail(ErrorCode::kInvalidArgument, "{} is NULL", name);
}

/// Errors: kInvalidArgument, where `items` or one of them is NULL.
template <typename Text = std::string>
[[nodiscard]] Result<std::vector<Text>> list_of(const char* const* items,
                                                std::size_t count,
                                                std::string_view name) {
  std::vector<Text> list;
  for (std::size_t i = 0; i < count; ++i) {
    KILN_TRY(given(items, name));
    KILN_TRY(given(items[i], fmt::format("{}[{}]", name, i)));
    list.emplace_back(items[i]);
  }
  return list;
}

/// Checks that `value` is not NULL and has the size of this library's struct, or of an
/// older one's, which has fewer fields at the end. Errors: kInvalidArgument.
template <typename Struct>
[[nodiscard]] Result<void> check_struct(const Struct* value, std::string_view name) {
  KILN_TRY(given(value, name));
  if (value->struct_size >= sizeof(value->struct_size) &&
      value->struct_size <= sizeof(Struct))
    return {};
  return fail(
      ErrorCode::kInvalidArgument,
      "{}.struct_size is {}, and this library's is {}: begin with the struct's _INIT "
      "macro, and load no library that is older than the kiln/c.h you compiled with",
      name, value->struct_size, sizeof(Struct));
}

/// The caller's fields; those that its older struct lacks are of `defaults`. Errors: as
/// check_struct().
template <typename Struct>
[[nodiscard]] Result<Struct> read_struct(const Struct* value, std::string_view name,
                                         Struct defaults) {
  KILN_TRY(check_struct(value, name));
  std::memcpy(static_cast<void*>(&defaults), value, value->struct_size);
  return defaults;
}

/// Copies as many fields as the caller's struct, which passed check_struct(), has.
template <typename Struct>
void write_struct(Struct* to, Struct from) {
  from.struct_size = to->struct_size;
  std::memcpy(static_cast<void*>(to), &from, from.struct_size);
}

/// Called first, so that a caller finds NULL after every error.
template <typename Output>
void clear(Output** output) {
  if (output != nullptr)
    *output = nullptr;
}

/// answer() of a call that makes `output`, which must not be NULL either.
template <typename Handle, typename Output, typename Call>
[[nodiscard]] kiln_result answer(const Handle* used, Output** output,
                                 std::string_view name, const Call& call) noexcept {
  clear(output);
  return answer(used, [&]() -> Result<void> {
    KILN_TRY(given(output, name));
    return call();
  });
}

[[nodiscard]] inline std::stop_token token_of(const kiln_cancel* cancel) {
  return cancel == nullptr ? std::stop_token() : cancel->source.get_token();
}

/// Freed by kiln_text_free(). Errors: kResourceLimit.
[[nodiscard]] inline Result<void> copy(const std::string& text, char** to) {
  *to = ::strdup(text.c_str());
  if (*to == nullptr)
    return fail(ErrorCode::kResourceLimit, "out of memory");
  return {};
}

/// `text`, with invalid UTF-8 replaced: messages contain paths and errors of loaders.
[[nodiscard]] std::string as_utf8(std::string text);

/// NULL: none is set. Errors: kInvalidArgument.
[[nodiscard]] Result<Options> options_of(const kiln_options* given_options);

/// The device with this ordinal. Valid as long as the service. Errors: as
/// Service::device().
[[nodiscard]] Result<const Device*> device_of(const kiln_service& service, int ordinal);

}  // namespace kiln::c
