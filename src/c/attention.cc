#include "kiln/ops/attention.h"

#include <cstdlib>

#include "c/handles.h"
#include "c/operation_structs.h"
#include "library/only_loaded.h"

namespace kiln::c {
namespace {

template <typename InC>
auto read(const InC* value, std::string_view name)
    -> Result<decltype(from_c(std::declval<InC>()))> {
  return from_c(KILN_TRY(read_struct(value, name, kInitial<InC>)));
}

/// Calls `use` with the device, the problem and the options for C++.
template <typename Use>
kiln_result with_problem(kiln_service* service, int device,
                         const kiln_attention_problem* problem,
                         const kiln_attention_options* options, const Use& use) {
  return answer(service, [&]() -> Result<void> {
    ops::AttentionProblem in_cpp = KILN_TRY(read(problem, "problem"));
    const ops::AttentionOptions how = options == nullptr
                                          ? ops::AttentionOptions()
                                          : KILN_TRY(read(options, "options"));
    const Device& where = *KILN_TRY(device_of(*service, device));
    const ops::AttentionStrides none{};
    if (in_cpp.q == none && in_cpp.k == none && in_cpp.v == none && in_cpp.o == none)
      set_strides(in_cpp);
    return use(where, in_cpp, how);
  });
}

}  // namespace
}  // namespace kiln::c

#define KILN_C_ATTENTION(function)                                                   \
  kiln_result kiln_##function(kiln_service* service, int device, kiln_stream stream, \
                              const kiln_attention_problem* problem,                 \
                              const kiln_attention_tensors* tensors,                 \
                              const kiln_attention_options* options) {               \
    return kiln::c::with_problem(service, device, problem, options,                  \
                                 [&](const auto& where, const auto& in_cpp,          \
                                     const auto& how) -> kiln::Result<void> {        \
                                   return kiln::ops::function(                       \
                                       service->service, where, stream, in_cpp,      \
                                       KILN_TRY(kiln::c::read(tensors, "tensors")),  \
                                       how);                                         \
                                 });                                                 \
  }                                                                                  \
  kiln_result kiln_##function##_workspace(                                           \
      kiln_service* service, int device, const kiln_attention_problem* problem,      \
      const kiln_attention_options* options, uint64_t* bytes) {                      \
    return kiln::c::with_problem(                                                    \
        service, device, problem, options,                                           \
        [&](const auto& where, const auto& in_cpp,                                   \
            const auto& how) -> kiln::Result<void> {                                 \
          KILN_TRY(kiln::c::given(bytes, "bytes"));                                  \
          *bytes = KILN_TRY(kiln::ops::prepare_##function(service->service, where,   \
                                                          in_cpp, how))              \
                       .workspace_bytes;                                             \
          return {};                                                                 \
        });                                                                          \
  }                                                                                  \
  kiln_result kiln_##function##_prepare(kiln_service* service, int device,           \
                                        const kiln_attention_problem* problem,       \
                                        const kiln_attention_options* options) {     \
    const kiln::OnlyLoadedScope builds(false);                                       \
    uint64_t bytes = 0;                                                              \
    return kiln_##function##_workspace(service, device, problem, options, &bytes);   \
  }

// NOLINTBEGIN(readability-function-size): three structs are parameters
KILN_C_ATTENTION(attention_forward)
KILN_C_ATTENTION(attention_backward)
// NOLINTEND(readability-function-size)

kiln_result kiln_attention_explain(kiln_service* service, int device,
                                   const kiln_attention_problem* problem,
                                   const kiln_attention_options* options, char** json) {
  kiln::c::clear(json);
  return kiln::c::with_problem(service, device, problem, options,
                               [&](const auto& where, const auto& in_cpp,
                                   const auto& how) -> kiln::Result<void> {
                                 KILN_TRY(kiln::c::given(json, "json"));
                                 return kiln::c::copy(
                                     KILN_TRY(kiln::ops::explain_attention(
                                         service->service, where, in_cpp, how)),
                                     json);
                               });
}

void kiln_text_free(char* text) {
  std::free(text);
}
