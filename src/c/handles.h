// What the handles of kiln/c.h hold, and the way of every call through it.

#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "kiln/c.h"
#include "kiln/kernel.h"
#include "kiln/result.h"
#include "kiln/service.h"
#include "library/public_border.h"
#include "util/fork_count.h"
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

/// The error as the caller gets it. `is_forked`: another process opened what was used.
[[nodiscard]] kiln_result error_of(const Error& error, bool is_forked) noexcept;

/// What `call`, which returns a Result<void> and may throw, comes to.
template <typename Call>
[[nodiscard]] kiln_result answer(const Call& call) noexcept {
  const Result<void> done = at_border(call);
  return done ? nullptr : error_of(done.error(), false);
}

/// The same with the handle that the caller gave.
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

/// Errors: kInvalidArgument, where an argument is NULL.
[[nodiscard]] inline Result<void> given(const void* pointer, std::string_view name) {
  if (pointer != nullptr)
    return {};
  return fail(ErrorCode::kInvalidArgument, fmt::format("{} is NULL", name));
}

/// That `value` is there, and of this library's size or of an older one's, which has
/// fewer fields at the end. Errors: kInvalidArgument.
template <typename Struct>
[[nodiscard]] Result<void> check_struct(const Struct* value, std::string_view name) {
  KILN_TRY(given(value, name));
  if (value->struct_size >= sizeof(value->struct_size) &&
      value->struct_size <= sizeof(Struct))
    return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}.struct_size is {}, and this library's is {}: begin with "
                          "the struct's _INIT macro, and load no older library than "
                          "the kiln/c.h that it is of",
                          name, value->struct_size, sizeof(Struct)));
}

/// What the caller gave, with the rest of `defaults`. Errors: as check_struct().
template <typename Struct>
[[nodiscard]] Result<Struct> read_struct(const Struct* value, std::string_view name,
                                         Struct defaults) {
  KILN_TRY(check_struct(value, name));
  std::memcpy(static_cast<void*>(&defaults), value, value->struct_size);
  return defaults;
}

/// As much of `from` as the caller, whose struct passed check_struct(), has place for.
template <typename Struct>
void write_struct(Struct* to, Struct from) {
  from.struct_size = to->struct_size;
  std::memcpy(static_cast<void*>(to), &from, from.struct_size);
}

/// Before anything can fail, so that a caller finds null after an error.
template <typename Output>
void clear(Output** output) {
  if (output != nullptr)
    *output = nullptr;
}

/// `text` with what is no UTF-8 replaced: messages have paths and words of loaders.
[[nodiscard]] std::string as_utf8(std::string text);

/// The device of that ordinal, as long as the service. Errors: as Service::device().
[[nodiscard]] Result<const Device*> device_of(const kiln_service& service, int ordinal);

}  // namespace kiln::c
