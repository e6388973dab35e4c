// What the handles of kiln/c.h hold, and the way of every call through it.

#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>

#include "kiln/c.h"
#include "kiln/kernel.h"
#include "kiln/result.h"
#include "kiln/service.h"
#include "library/public_border.h"
#include "util/fork_count.h"
#include "util/try.h"

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

/// That `value` is there and of this library's size. Errors: kInvalidArgument.
template <typename Struct>
[[nodiscard]] Result<void> check_struct(const Struct* value, std::string_view name) {
  KILN_TRY(given(value, name));
  if (value->struct_size == sizeof(Struct))
    return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}.struct_size is {}, and this library's is {}: begin with "
                          "the struct's _INIT macro, of the kiln/c.h of this library",
                          name, value->struct_size, sizeof(Struct)));
}

/// The device of that ordinal, as long as the service. Errors: as Service::device().
[[nodiscard]] Result<const Device*> device_of(const kiln_service& service, int ordinal);

}  // namespace kiln::c
