// A value that is computed once for a request and shared by all its copies: the headers
// with which its source was first resolved.

#pragma once

#include <functional>
#include <memory>

#include "kiln/request.h"
#include "kiln/result.h"
#include "util/try.h"

namespace kiln::request {

class FirstResolve {
 public:
  /// The value of the first successful `make` for this request and `identity`; a
  /// failure is returned and not kept. `identity` says what the request stands for if
  /// the request itself does not, such as the template that a catalog has under its
  /// name; the value must keep it alive. Null: the request itself suffices. Calls for
  /// one request wait for each other. All callers in one program must use the same T.
  template <typename T>
  [[nodiscard]] static Result<std::shared_ptr<const T>> get(
      const Request& request, const void* identity,
      const std::function<Result<std::shared_ptr<const T>>()>& make) {
    return std::static_pointer_cast<const T>(KILN_TRY(
        get_any(request, identity, [&]() -> Result<std::shared_ptr<const void>> {
          return std::shared_ptr<const void>(KILN_TRY(make()));
        })));
  }

 private:
  using MakeAny = std::function<Result<std::shared_ptr<const void>>()>;
  static Result<std::shared_ptr<const void>> get_any(const Request& request,
                                                     const void* identity,
                                                     const MakeAny& make);
};

}  // namespace kiln::request
