// The operations. The structs of kiln/c.h, and how they become those of C++, follow
// from the headers of kiln/ops: c/operation_structs.h.

#include <utility>

#include "c/handles.h"
#include "c/operation_structs.h"
#include "kiln/kiln.h"
#include "library/only_loaded.h"
#include "ops/operation_table.h"

namespace kiln::c {
namespace {

/// Calls `use` with the device and the arguments for C++.
template <typename InC, typename Use>
kiln_result with_args(kiln_service* service, int device, const InC* args,
                      const Use& use) {
  return answer(service, [&]() -> Result<void> {
    const InC whole = KILN_TRY(read_struct(args, "args", kInitial<InC>));
    return use(*KILN_TRY(device_of(*service, device)), from_c(whole));
  });
}

}  // namespace
}  // namespace kiln::c

bool kiln_use_only_loaded(bool only_loaded) {
  return std::exchange(kiln::only_loaded(), only_loaded);
}

#define KILN_C_OPERATION(function, Args)                                             \
  kiln_result kiln_##function(kiln_service* service, int device, kiln_stream stream, \
                              const kiln_##function##_args* args) {                  \
    return kiln::c::with_args(                                                       \
        service, device, args, [&](const kiln::Device& where, const auto& in_cpp) {  \
          return kiln::ops::function(service->service, where, stream, in_cpp);       \
        });                                                                          \
  }                                                                                  \
  kiln_result kiln_##function##_prepare(kiln_service* service, int device,           \
                                        const kiln_##function##_args* args) {        \
    const kiln::OnlyLoadedScope builds(false);                                       \
    return kiln::c::with_args(                                                       \
        service, device, args, [&](const kiln::Device& where, const auto& in_cpp) {  \
          return kiln::ops::prepare(service->service, where, in_cpp);                \
        });                                                                          \
  }

#define KILN_C_WORKSPACE(function, Args)                                           \
  kiln_result kiln_##function##_workspace(kiln_service* service, int device,       \
                                          const kiln_##function##_args* args,      \
                                          uint64_t* bytes) {                       \
    return kiln::c::with_args(                                                     \
        service, device, args,                                                     \
        [&](const kiln::Device& where, const auto& in_cpp) -> kiln::Result<void> { \
          KILN_TRY(kiln::c::given(bytes, "bytes"));                                \
          *bytes = KILN_TRY(kiln::ops::function##_workspace_bytes(where, in_cpp)); \
          return {};                                                               \
        });                                                                        \
  }

KILN_EACH_OPERATION(KILN_C_OPERATION)
KILN_EACH_WORKSPACE(KILN_C_WORKSPACE)
