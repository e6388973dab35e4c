// The operations as programs call them: each runs its family's plan on a service.

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "library/service_parts.h"
#include "ops/known_calls.h"
#include "ops/on_device.h"
#include "ops/operation_table.h"
#include "ops/plans.h"
#include "ops/run.h"
#include "util/public_border.h"
#include "util/try.h"

#define KILN_OPERATION(function, Args)                                               \
  Result<void> function(Service& service, const Device& device, CUstream_st* stream, \
                        const Args& args) {                                          \
    return run_operation(service, {#function, device, stream}, args);                \
  }                                                                                  \
  Result<void> prepare(Service& service, const Device& device, const Args& args) {   \
    return prepare_operation(service, device, args);                                 \
  }

namespace kiln::ops {
namespace {

/// Keeps a call that was launched, so that an equal one needs less. If it cannot be
/// kept, that one is planned like this one.
template <typename Args>
void keep(Service& service, const Device& device, const Args& args,
          const CallParts<Args>& call, const std::vector<Launched>& launched) {
  std::ignore = at_border([&]() -> Result<void> {
    const auto once = listed_plan(args, device);
    const auto elsewhere = listed_plan(moved(args), device);
    KnownCalls::add(call.bytes(), once && elsewhere
                                      ? KnownCall::of(service, call.addresses(), *once,
                                                      *elsewhere, launched)
                                      : std::nullopt);
    return {};
  });
}

/// The body of every operation. Arguments are checked before any kernel is fetched.
template <typename Args>
Result<void> run_operation(Service& service, const Place& place, const Args& args) {
  return at_border([&]() -> Result<void> {
    const CallParts call(ServiceParts::kernels_of(service).service(), place, args);
    const KnownCall* const known = KnownCalls::find(call.bytes());
    if (known != nullptr && known->accepts(call.addresses()))
      return on_device(service, place, [&] {
        return known->launch(service, place.stream, call.addresses());
      });
    Launches launches = KILN_TRY(plan(args, place.device, Pointers::kChecked));
    std::vector<Launched> launched;
    KILN_TRY(on_device(service, place, [&] {
      return run(service, place.device, place.stream, std::move(launches), &launched);
    }));
    if (KnownCalls::should_add(call.bytes()))
      keep(service, place.device, args, call, launched);
    return {};
  });
}

/// The body of every prepare().
template <typename Args>
Result<void> prepare_operation(Service& service, const Device& device,
                               const Args& args) {
  return at_border([&]() -> Result<void> {
    return fetch(service, device, KILN_TRY(plan(args, device)));
  });
}

}  // namespace

KILN_EACH_OPERATION(KILN_OPERATION)

}  // namespace kiln::ops
